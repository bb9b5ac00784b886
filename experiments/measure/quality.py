"""A loss in nats per token, converted to other units, and the loss that the frequencies of tokens alone reach."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


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


def unigram_loss(targets: npt.NDArray[np.int64], unigram: npt.NDArray[np.int64], special: frozenset[int]) -> float:
    """The mean loss, in nats per target, of predicting the targets from the frequencies of single tokens.

    targets and unigram are counts [vocabulary]. One is added to each count of `unigram`, so a token that was never seen
    has a finite loss. Special tokens don't occur in text, so they get their frequency among the targets.
    """
    ids = sorted(special)
    shares = targets[ids] / targets.sum()
    probabilities = unigram + 1.0
    probabilities[ids] = 0.0
    probabilities *= (1.0 - shares.sum()) / probabilities.sum()
    probabilities[ids] = shares
    occurs = targets > 0
    return float(-(targets[occurs] * np.log(probabilities[occurs])).sum() / targets.sum())
