"""What an encoder-decoder says by itself, and how good that is."""
