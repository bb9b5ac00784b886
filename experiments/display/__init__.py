"""Output on the terminal: the progress of a run and its result, and rows as tables."""
