"""Sliding-window attention (Beltagy et al. 2020, 2004.05150): a position attends to its neighbours only."""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from attention import multi_head
from attention.layers.cost import Cost
from attention.layers.frame import AttendOptions


class Attention(multi_head.Attention):
    """Multi-head attention to positions at most `window` before or behind the query's own.

    A window of the length or more is multi-head attention. Positions of another sequence don't compare: a memory is
    attended to as a whole. The kernels compute all products and mask those outside, so it is as dear as multi-head in
    training; what it saves is the cache, of the last `window` + 1 positions.
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
        super().__init__(hidden_size, heads, key_size, value_size, memory_size, scaled, linear_bias, dropout, backend)
        self.window = window

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """[B, N, H, V]; the window is a part of the mask."""
        if memory is x and self.window < x.shape[1] - 1:
            place = torch.arange(x.shape[1], device=x.device)
            near = ((place[:, None] - place).abs() <= self.window)[None, None]
            options = options._replace(mask=near if options.mask is None else near & options.mask)
        return super().attend(x, memory, query, key, value, options)

    def cost(self, queries: int, memory: int) -> Cost:
        """That of multi-head attention, with a cache of no more than the window."""
        cost = super().cost(queries, memory)
        return dataclasses.replace(cost, cached=cost.cached // max(1, memory) * min(memory, self.window + 1))
