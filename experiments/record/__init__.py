"""What a run leaves behind: its folder, its checkpoints, and its mirror in W&B."""
