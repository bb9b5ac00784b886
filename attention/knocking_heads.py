"""Knocking-heads attention (2025, 2510.23052), its linear form: maps that all heads share, before the attention."""

# B batch, N positions, H heads, K key size, V value size

from __future__ import annotations

import torch
from torch import Tensor, nn

from attention import multi_head
from attention.layers.cost import Cost


class Attention(multi_head.Attention):
    """Multi-head attention whose heads' queries, keys and values go through a map [K, K], [K, K] and [V, V].

    Each of the three is one matrix for all heads, and starts as the identity: training begins with multi-head
    attention. A rotary position comes after them.
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
        super().__init__(hidden_size, heads, key_size, value_size, memory_size, scaled, linear_bias, dropout, backend)
        self.shared_query = SharedMap(self.key_size)
        self.shared_key = SharedMap(self.key_size)
        self.shared_value = SharedMap(self.value_size)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K], keys [B, M, H, K], values [B, M, H, V], each through the map that its heads share."""
        query, key, value = super().project(x, memory)
        return self.shared_query(query), self.shared_key(key), self.shared_value(value)

    def cost(self, queries: int, memory: int) -> Cost:
        """n h d_k^2 + m h (d_k^2 + d_v^2) multiplies more than multi-head."""
        keys, values = self.key_size**2, self.value_size**2
        multiplies = self.value_heads * (queries * keys + memory * (keys + values))
        return super().cost(queries, memory) + Cost(2 * keys + values, multiplies)


class SharedMap(nn.Module):
    """x W on the features of every head."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set W to the identity."""
        nn.init.eye_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, H, K] -> the same."""
        return x @ self.weight
