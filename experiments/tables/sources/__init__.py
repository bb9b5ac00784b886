"""The sources of a table's numbers: runs, fine-tuned runs, or a function."""
