"""Gated attention (Qiu et al. 2025, 2505.06708): the output of each head is gated by the input at the query."""

# B batch, N queries, D hidden, H heads, V value size

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from attention import multi_head
from attention.layers import cost
from attention.layers.attention_layer import AttendOptions
from attention.layers.cost import Cost
from attention.layers.projected import keep_rows


class Attention(multi_head.Attention):
    """Multi-head attention whose outputs [B, N, H, V] are multiplied by sigmoid(x W) before the output map.

    This is the paper's best form, G1: elementwise, with separate gates for each head and no bias.
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
        self.gate = nn.Linear(hidden_size, self.output.in_features, bias=False)

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, H, V], each multiplied by its gate."""
        heads = super().attend(x, memory, query, key, value, options)
        return heads * self.gate(x).sigmoid().unflatten(-1, heads.shape[2:])

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads and their gates, in place."""
        super().keep_heads(heads)
        keep_rows(self.gate, heads, self.value_size)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of multi-head attention plus that of the gate, n d h d_v multiplies."""
        return super().cost(queries, memory) + cost.linear(queries, self.gate)
