"""Text and its way to packed tokens: corpora, tokenizers, the cache, batches."""
