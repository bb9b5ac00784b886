"""From text to packed tokens: corpora, tokenizers, the cache, batches."""
