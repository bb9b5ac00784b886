"""Launching: from a command line to finished cells: the plan, one cell in its process, the cells of a sweep."""
