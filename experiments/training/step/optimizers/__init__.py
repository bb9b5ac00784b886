"""The optimizers: a file for each kind, and what all have in common."""
