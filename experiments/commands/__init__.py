"""The subcommands of `attn`, one file each, and how a command is called and ends. They may import every package.

No package imports them; `cli.py` does, and `experiments` itself for the functions of the library.
"""
