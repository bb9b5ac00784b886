"""Where the numbers of a table come from: runs, fine-tuned runs, or a function."""
