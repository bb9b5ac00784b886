"""Launching: the way from a command line to finished cells, with the plan, the process of a cell, and sweeps."""
