"""Searches for good settings: the space, the study that several processes share, and its findings."""
