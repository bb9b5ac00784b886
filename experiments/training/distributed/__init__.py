"""A run on several devices: its processes, how they start, and what they divide among them."""
