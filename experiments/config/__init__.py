"""From YAML and the arguments of a command line to checked settings."""
