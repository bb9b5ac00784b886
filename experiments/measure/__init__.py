"""Measurements of a machine and of a run: time, memory, operations, quality."""
