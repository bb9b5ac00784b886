"""Positions that are added: to the embeddings (sinusoids), or to the logits (a bias by relative distance)."""

# N length, D hidden size, H softmax heads, O = 2 N - 1 offsets of two positions

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from experiments.settings.mistake import Mistake


def sinusoids(length: int, hidden_size: int) -> Tensor:
    """Table [N, D]: PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i + 1) = cos(p / 10000^(2i/D)) (1706.03762, 3.5)."""
    feature = torch.arange(hidden_size, dtype=torch.float64)
    frequency = 10000.0 ** (-(feature - feature % 2) / hidden_size)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.where(feature % 2 == 0, angle.sin(), angle.cos()).to(torch.get_default_dtype())


def bucket(offset: Tensor, buckets: int, distance: int, causal: bool = False) -> Tensor:
    """Bucket in [0, buckets) of an offset, memory position minus query position (Raffel et al. 2020, 1910.10683, 2.1).

    The lower half of the buckets is for memory at or before the query, the upper half for memory after it; causal: all
    are for the former, and bucket 0 has what may not be attended to. In each half the first half hold one distance a
    bucket; the rest widen logarithmically up to `distance`, from where on all share the last one.
    """
    half = buckets if causal else buckets // 2
    exact = half // 2
    far = -offset.clamp(max=0) if causal else offset.abs()
    growth = torch.log(far.clamp(min=exact).double() / exact) / math.log(distance / exact)
    widening = exact + (growth * (half - exact)).long()
    one_sided = torch.where(far < exact, far, widening.clamp(max=half - 1))
    return one_sided if causal else one_sided + half * (offset > 0)


class RelativeBias(nn.Module):
    """A learned bias on the logits of each softmax head by the bucket of the offset, one table for all layers."""

    def __init__(self, buckets: int, distance: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        if buckets % 2:
            raise Mistake(f"model.relative_buckets={buckets}: must be even, as the two directions share them")
        exact = buckets // (2 if causal else 4)
        if distance <= exact:
            raise Mistake(
                f"model.relative_distance={distance}: must be above {exact}, the distances that each have one of the "
                f"model.relative_buckets={buckets} to themselves"
            )
        self.distance, self.causal = distance, causal
        self.table = nn.Embedding(buckets, heads)

    def forward(self, length: int) -> Tensor:
        """The bias [1, H, N, N], query positions before memory positions."""
        offset_O = torch.arange(1 - length, length, device=self.table.weight.device)
        bias_OH = self.table(bucket(offset_O, self.table.num_embeddings, self.distance, self.causal))
        # window w of N offsets starts at w - (N - 1): it is the row of query N - 1 - w
        return bias_OH.T.unfold(1, length, 1).flip(1)[None]
