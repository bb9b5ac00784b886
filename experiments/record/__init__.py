"""What a run leaves behind: its folder, its mirror in W&B, and what the screen shows meanwhile."""
