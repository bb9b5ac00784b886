"""The examples of a benchmark: read, cut into windows, and scored."""
