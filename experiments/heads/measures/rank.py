"""The low-rank bottleneck: the rank of the logits before and after heads mix (Bhojanapalli et al. 2020, 2002.07028)."""

# B batch, N queries, M memory, H heads

from __future__ import annotations

import torch
from torch import Tensor


def numerical_rank(maps: Tensor) -> Tensor:
    """[..., N, M] -> int64 [...]: singular values above the largest times max(N, M) times the dtype's epsilon."""
    return torch.linalg.matrix_rank(maps)


def effective_rank(maps: Tensor) -> Tensor:
    """[..., N, M] -> [...]: exp of the entropy of the singular values as shares (Roy, Vetterli 2007); 0 for 0."""
    values = torch.linalg.svdvals(maps)
    total = values.sum(-1, keepdim=True)
    shares = values / total.clamp(min=1e-300)
    return torch.where(total[..., 0] > 0, torch.exp(-torch.xlogy(shares, shares).sum(-1)), 0.0)


def divergence_by_rank(logits: Tensor, ranks: list[int], causal: bool = False) -> Tensor:
    """[R, ...]: nats between softmax(logits [..., N, M]) and that of the nearest logits of each rank, averaged over
    rows.

    The softmax ignores a shift of a row, so the logits are centred first. Nearest means the smallest sum of squares
    (Eckart and Young), which gives an upper bound for the best logits of that rank. The KL divergence is that of the
    true weights.
    """
    centred = logits - logits.mean(-1, keepdim=True)
    left, values, right = torch.linalg.svd(centred, full_matrices=False)
    allowed = torch.ones(logits.shape[-2:], dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    true = _log_weights(centred, allowed)
    divergences = []
    for rank in ranks:
        nearest = (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]
        difference = (true - _log_weights(nearest, allowed)).masked_fill(~allowed, 0.0)
        divergences.append((true.exp() * difference).sum(-1).mean(-1))
    return torch.stack(divergences)


def _log_weights(logits: Tensor, allowed: Tensor) -> Tensor:
    return logits.masked_fill(~allowed, float("-inf")).log_softmax(-1)
