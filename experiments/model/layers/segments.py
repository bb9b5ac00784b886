"""Batches of segments that attend to the segment before (Transformer-XL, Dai et al. 2019, 1901.02860, 3.2)."""

# B batch, S segments of L tokens, D hidden size

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cut(x: Tensor, length: int) -> Tensor:
    """[B, S L, ...] -> [B S, L, ...]: cut each sequence into S segments, which follow each other in the batch."""
    return x.unflatten(1, (-1, length)).flatten(0, 1)


def joined(x: Tensor, segments: int) -> Tensor:
    """[B S, L, ...] -> [B, S L, ...]: the inverse of `cut`."""
    return x.unflatten(0, (-1, segments)).flatten(1, 2)


def with_previous(x: Tensor, segments: int) -> Tensor:
    """[B S, L, D] -> [B S, 2L, D]: put the previous segment before each segment.

    No gradient flows through the previous segment. The first segment of a sequence gets zeros instead.
    """
    before = x.detach().unflatten(0, (-1, segments))[:, :-1]
    return torch.cat([F.pad(before, (0, 0, 0, 0, 1, 0)).flatten(0, 1), x], dim=1)


def seen(real: Tensor, segments: int) -> Tensor:
    """Where each position may attend, bool [B S, 1, L, 2L]: the previous segment, and its own up to the position.

    real: bool [B S, L], False = padding.
    """
    length = real.size(1)
    memory = with_previous(real[..., None], segments)[..., 0]
    past = torch.ones(length, 2 * length, dtype=torch.bool, device=real.device).tril(length)
    return memory[:, None, None] & past
