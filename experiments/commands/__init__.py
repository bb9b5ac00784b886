"""The subcommands of `attn`, one file each: they may import every package, and only `cli.py` imports them."""
