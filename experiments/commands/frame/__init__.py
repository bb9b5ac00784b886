"""What stands around a command: which options its modes read, how it is found and completed, and how it ends."""
