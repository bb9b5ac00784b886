"""Texts that an encoder-decoder generates, and their scores."""
