"""What the mechanisms share: the frame of a layer, its projections, its cost, rotary positions, and `attend`."""
