"""What a loss in nats per token means in other units."""

from __future__ import annotations

import math


def perplexity(loss: float) -> float:
    """exp(loss); infinity beyond the range of float64, at about 709 nats."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """Bits that a token costs, shared among the bytes of text that a token of this split stands for.

    It compares tokenizers, as perplexity doesn't. `loss` in nats per predicted token; `tokens` and `text_bytes` of the
    split's documents.
    """
    return loss / math.log(2) * tokens / text_bytes
