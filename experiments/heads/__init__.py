"""The behaviour of the heads of a trained run, on held-out text."""
