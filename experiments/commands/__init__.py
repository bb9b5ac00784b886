"""The subcommands of `attn`, one file each. In `frame/` is what stands around each of them.

They may import every package. No package imports them; `cli.py` does, and `experiments` itself for the functions of the
library.
"""
