"""The architectures: encoders, a causal decoder and an encoder-decoder, one file each."""
