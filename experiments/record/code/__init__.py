"""The code that a run computes with: digests of its files, and what has changed in them since."""
