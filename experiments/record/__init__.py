"""The record of a run: its folder, its checkpoints, and its mirrors, such as W&B."""
