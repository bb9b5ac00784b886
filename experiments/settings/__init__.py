"""Every setting: its type, its range, and what it is. The values live in `conf/`; nothing here has a default."""
