"""From YAML and the words of a command line to checked settings."""
