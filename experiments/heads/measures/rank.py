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


def attended(maps: Tensor, allowed: Tensor) -> Tensor:
    """The maps [..., N, M] with zeros in rows and columns in which nothing is allowed; zeros add no rank."""
    return torch.where(_kept(allowed), maps, 0.0)


def divergence_by_rank(logits: Tensor, ranks: list[int], allowed: Tensor) -> Tensor:
    """[R, ...]: nats between softmax(logits [..., N, M]) and that of the nearest logits of each rank, averaged over
    rows.

    allowed: bool [..., N, M], where a query may attend. Rows and columns in which nothing is allowed are left out.

    The softmax ignores a shift of a row, so the logits are centred first. Nearest means the smallest sum of squares
    (Eckart and Young), which gives an upper bound for the best logits of that rank. The KL divergence is that of the
    true weights.
    """
    kept, rows = _kept(allowed), allowed.any(-1)
    mean = torch.where(kept, logits, 0.0).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
    centred = torch.where(kept, logits - mean, 0.0)
    left, values, right = torch.linalg.svd(centred, full_matrices=False)
    true = _log_weights(centred, allowed)
    divergences = []
    for rank in ranks:
        nearest = (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]
        difference = torch.where(allowed, true - _log_weights(nearest, allowed), 0.0)
        divergences.append((torch.where(allowed, true.exp(), 0.0) * difference).sum((-2, -1)) / rows.sum(-1))
    return torch.stack(divergences)


def _kept(allowed: Tensor) -> Tensor:
    return allowed.any(-1, keepdim=True) & allowed.any(-2, keepdim=True)


def _log_weights(logits: Tensor, allowed: Tensor) -> Tensor:
    return logits.masked_fill(~allowed, float("-inf")).log_softmax(-1)
