"""The sources of a table's numbers: runs, fine-tuned runs, measurements of them, or a function."""
