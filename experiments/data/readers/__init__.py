"""Readers of rows, of text or of examples: local files, the Hugging Face hub, sentence pairs, the docs of Python."""
