"""The subcommands of `attn`, one file each, and how a command ends. They may import every package.

No package imports them; `cli.py` does, and `experiments` itself for the functions of the library.
"""
