"""The subcommands of `attn`, one file each: they know every room, and only `cli.py` knows them."""
