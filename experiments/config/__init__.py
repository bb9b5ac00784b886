"""Composing: YAML and the arguments of a command line become checked settings."""
