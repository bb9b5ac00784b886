"""Masked-token prediction (Devlin et al. 2019, 1810.04805, 3.1): choose positions, hide their tokens, predict them."""

# B batch, N length, P positions to predict, V vocabulary

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments import settings

# parts these random numbers from others that are keyed by the same seed and step
STREAM = int.from_bytes(b"mask", "big")


class MaskedBatch(NamedTuple):
    tokens: Tensor  # int64 [B, N], the chosen ones replaced
    rows: Tensor  # int64 [P], the chosen positions in the flattened batch, ascending
    targets: Tensor  # int64 [P], the tokens that were there


def mask_batch(
    tokens: npt.NDArray[np.integer],
    seed: int,
    step: int,
    objective: settings.Masked,
    special: frozenset[int],
    mask_id: int,
    vocabulary_size: int,
) -> MaskedBatch:
    """A pure function of its arguments: `rate` of the tokens [B, N] that are not special, rounded and at least one.

    Each chosen token becomes [MASK] with probability `mask_share`, a token drawn from all that are not special with
    probability `random_share`, and is kept otherwise.

    ValueError: a batch of nothing but special tokens.
    """
    flat = tokens.reshape(-1).astype(np.int64)
    candidates = np.flatnonzero(~np.isin(flat, list(special)))
    if not candidates.size:
        raise ValueError("a batch of special tokens only: there is nothing to mask")
    random = np.random.Generator(np.random.Philox(key=np.array([STREAM << 32 | seed, step], dtype=np.uint64)))
    count = max(1, round(objective.rate * candidates.size))
    rows = np.sort(random.choice(candidates, count, replace=False, shuffle=False))
    targets = flat[rows]
    role = random.random(count)
    replacement = random_tokens(random, count, special, vocabulary_size)
    replacement = np.where(role < objective.mask_share + objective.random_share, replacement, targets)
    flat[rows] = np.where(role < objective.mask_share, mask_id, replacement)
    return MaskedBatch(*(torch.from_numpy(array) for array in (flat.reshape(tokens.shape), rows, targets)))


def random_tokens(
    random: np.random.Generator, count: int, special: frozenset[int], vocabulary_size: int
) -> npt.NDArray[np.int64]:
    """int64 [count], uniform over the vocabulary without the special tokens."""
    drawn = random.integers(vocabulary_size - len(special), size=count)
    for token in sorted(special):
        drawn += drawn >= token
    return drawn


def loss(logits_PV: Tensor, targets_P: Tensor) -> Tensor:
    """Negative log likelihood in nats, computed in float32 at least, summed in float64."""
    logits_PV = logits_PV.to(torch.promote_types(logits_PV.dtype, torch.float32))
    return F.cross_entropy(logits_PV, targets_P, reduction="none").sum(dtype=torch.float64)
