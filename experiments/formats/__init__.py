"""Other libraries' checkpoints: their settings and weights as ours, and ours as theirs."""
