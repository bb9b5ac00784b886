"""The layers of a model: attention of a variant, feed-forward, norms, embeddings, positions, and stacks of them."""
