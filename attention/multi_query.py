"""Multi-query attention (Shazeer 2019, 1911.02150): all heads share one key and one value map."""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from attention.layers.attention_layer import Sizes
from attention.layers.projected import ProjectedAttention, keep_columns, keep_rows


class Attention(ProjectedAttention):
    """softmax(Q_i K^T / sqrt(key_size)) V in head i: each head has its own queries; all share the keys and values."""

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        super().__init__(
            hidden_size,
            memory_size,
            sizes,
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5,
            dropout=dropout,
            backend=backend,
        )
        self.key = nn.Linear(self.key.in_features, self.key_size, bias=linear_bias)
        self.value = nn.Linear(self.value.in_features, self.value_size, bias=linear_bias)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K], keys [B, M, H, K], values [B, M, H, V]; keys and values are the same in all heads."""
        query = self.query(x).unflatten(-1, (self.key_heads, self.key_size))
        key = self.key(memory).unsqueeze(2).expand(-1, -1, self.key_heads, -1)
        value = self.value(memory).unsqueeze(2).expand(-1, -1, self.value_heads, -1)
        return query, key, value

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads of queries and output, in place. The key and value maps stay: all heads share them."""
        keep_rows(self.query, heads, self.key_size)
        keep_columns(self.output, heads, self.value_size)
        self.key_heads = self.softmax_heads = self.value_heads = len(heads)
