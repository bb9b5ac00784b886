"""A loss in nats per token, converted to other units."""

from __future__ import annotations

import math


def perplexity(loss: float) -> float:
    """exp(loss); infinity beyond the range of float64, at about 709 nats."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """The bits that a token costs, divided by the mean number of bytes of text in a token of this split.

    Unlike perplexity, it compares tokenizers. `loss` is in nats per predicted token; `tokens` and `text_bytes` are
    those of the split's documents.
    """
    return loss / math.log(2) * tokens / text_bytes
