"""Cells, each trained in a process of its own, and the cores and GPUs of this machine that they share."""
