"""Checkpoint formats of Hugging Face's transformers: one file a format, and this folder is the list of them."""
