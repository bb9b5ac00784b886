"""Checkpoint formats of Hugging Face's transformers. Each format is a file, and the folder is their list."""
