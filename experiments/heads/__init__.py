"""What the heads of a trained run do, on held-out text."""
