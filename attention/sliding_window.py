"""Sliding-window attention (Beltagy et al. 2020, 2004.05150): a position attends only to its neighbours."""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

import dataclasses

from torch import Tensor

from attention import multi_head
from attention.layers.attention_layer import AttendOptions
from attention.layers.cost import Cost
from attention.layers.window import near


class Attention(multi_head.Attention):
    """Multi-head attention to the positions at most `window` before or after the query's own.

    With a window of at least the length it is multi-head attention. Another sequence is attended to as a whole, because
    its positions can't be compared with those of the queries. The kernels compute all products and mask those outside
    the window, so training costs as much as with multi-head attention. The cache is smaller: it holds the last
    `window` + 1 positions.
    """

    positional = True

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        window: int = 16,
        scaled: bool = True,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        if window < 1:
            raise ValueError(f"window: is {window}, must be at least 1")
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
        self.window = window

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, H, V]; the window becomes a part of the mask."""
        if memory is x:
            options = options._replace(mask=near(self.window, x, options.mask))
        return super().attend(x, memory, query, key, value, options)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of multi-head attention. With as many queries as memory positions, the cache holds `window` + 1 of them.

        Other numbers are those of attention to another sequence.
        """
        cost = super().cost(queries, memory)
        if queries != memory:
            return cost
        return dataclasses.replace(cost, cached=cost.cached // max(1, memory) * min(memory, self.window + 1))
