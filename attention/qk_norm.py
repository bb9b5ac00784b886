"""Query-key normalization (Henry et al. 2020, 2010.04245; Dehghani et al. 2023, 2302.05442): bounded logits."""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

import torch
from torch import Tensor, nn

from attention import multi_head
from attention.layers.cost import Cost


class Attention(multi_head.Attention):
    """Multi-head attention whose queries and keys go through an RMSNorm over the features of a head.

    The norms come before a rotary position, and all heads share their gains [K]. A logit is then at most sqrt(key_size)
    times the gains, however large the query and key maps grow. Henry et al. divide by the length of the vectors and
    learn one factor. Dehghani et al. also subtract the mean. The RMSNorm here is the form of most later models.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        scaled: bool = True,
        epsilon: float = 1e-6,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            hidden_size,
            heads,
            key_size=key_size,
            value_size=value_size,
            memory_size=memory_size,
            scaled=scaled,
            linear_bias=linear_bias,
            dropout=dropout,
            backend=backend,
        )
        self.query_norm = nn.RMSNorm(self.key_size, eps=epsilon)
        self.key_norm = nn.RMSNorm(self.key_size, eps=epsilon)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalized queries [B, N, H, K] and keys [B, M, H, K], and values [B, M, H, V]."""
        query, key, value = super().project(x, memory)
        # also under autocast, the sums of squares have the dtype of the gains
        query, key = (
            norm(each.to(norm.weight.dtype)).to(each.dtype)
            for norm, each in ((self.query_norm, query), (self.key_norm, key))
        )
        return query, key, value

    def fold_scale(self) -> None:
        """Multiply the gains of the queries by 1 / sqrt(key_size): their norm undoes a factor of the map before it."""
        with torch.no_grad():
            self.query_norm.weight.mul_(self.key_size**-0.5)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of multi-head attention, plus the gains of the two norms as parameters."""
        return super().cost(queries, memory) + Cost(parameters=2 * self.key_size)
