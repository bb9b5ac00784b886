"""Output on the terminal: the progress of a run, and runs side by side."""
