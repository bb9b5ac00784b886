"""The models around an attention variant."""
