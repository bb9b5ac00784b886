"""Models of other libraries: their words, their configuration, their weights."""
