"""What stands around every command: which options each of its modes reads, how it is found, and how it ends."""
