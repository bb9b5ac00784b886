"""Text, and how it becomes packed tokens: corpora, tokenizers, the cache, batches."""
