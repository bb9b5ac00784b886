"""The layers of a model: attention by its variant, feed-forward, norms, embeddings, positions, and stacks of them."""
