"""The tasks of runs: to predict a text, or to solve the examples of a benchmark."""
