"""Timing: attention layers and whole training steps, in interleaved rounds."""
