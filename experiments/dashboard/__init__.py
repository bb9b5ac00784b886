"""The comparison page: one HTML file, or a workspace in W&B."""
