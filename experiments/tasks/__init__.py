"""What a run learns from: a text to predict, or the examples of a benchmark."""
