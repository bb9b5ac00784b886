"""Knocking-heads attention (2025, 2510.23052) in its linear form: all heads share maps before the attention."""

# B batch, N positions, H heads, K key size, V value size

from __future__ import annotations

import torch
from torch import Tensor, nn

from attention import multi_head
from attention.layers.cost import Cost


class Attention(multi_head.Attention):
    """Multi-head attention in which queries, keys and values go through maps [K, K], [K, K] and [V, V].

    Each of the three maps is one matrix for all heads. It starts as the identity, so training starts from multi-head
    attention. Rotary positions are applied after the maps.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        scaled: bool = True,
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
        self.shared_query = SharedMap(self.key_size)
        self.shared_key = SharedMap(self.key_size)
        self.shared_value = SharedMap(self.value_size)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K], keys [B, M, H, K] and values [B, M, H, V], each mapped by its shared matrix."""
        query, key, value = super().project(x, memory)
        return self.shared_query(query), self.shared_key(key), self.shared_value(value)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of multi-head attention plus n h d_k^2 + m h (d_k^2 + d_v^2) multiplies."""
        keys, values = self.key_size**2, self.value_size**2
        multiplies = self.value_heads * (queries * keys + memory * (keys + values))
        return super().cost(queries, memory) + Cost(2 * keys + values, multiplies)


class SharedMap(nn.Module):
    """Maps the features of every head by the same W: x W."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set W to the identity."""
        nn.init.eye_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, H, K] -> [B, N, H, K]."""
        return x @ self.weight
