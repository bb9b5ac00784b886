"""The papers' four linear maps around the frame, and what leaves heads out of a linear map."""

# B batch, N queries, M memory, D hidden, H heads, K key size, V value size

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from attention.kernels.autocast import cast
from attention.layers import cost
from attention.layers.cost import Cost
from attention.layers.frame import AttentionLayer


class ProjectedAttention(AttentionLayer):
    """A layer with linear maps `query`, `key`, `value` and `output`; key and value heads of any number and size."""

    def __init__(
        self,
        hidden_size: int,
        memory_size: int,
        key_heads: int,
        softmax_heads: int,
        value_heads: int,
        key_size: int,
        value_size: int,
        linear_bias: bool,
        **frame: Any,
    ) -> None:
        super().__init__(softmax_heads, **frame)
        self.key_heads, self.value_heads = key_heads, value_heads
        self.key_size, self.value_size = key_size, value_size
        self.query = nn.Linear(hidden_size, key_heads * key_size, bias=linear_bias)
        self.key = nn.Linear(memory_size, key_heads * key_size, bias=linear_bias)
        self.value = nn.Linear(memory_size, value_heads * value_size, bias=linear_bias)
        self.output = nn.Linear(value_heads * value_size, hidden_size, bias=linear_bias)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # cast once: each map would cast by itself, and keep its copy for the backward
        to_itself, x = memory is x, cast(x)
        memory = x if to_itself else cast(memory)
        return (
            self.query(x).unflatten(-1, (self.key_heads, self.key_size)),
            self.key(memory).unflatten(-1, (self.key_heads, self.key_size)),
            self.value(memory).unflatten(-1, (self.value_heads, self.value_size)),
        )

    def keep_heads(self, kept: Sequence[int]) -> None:
        keep_rows(self.value, kept, self.value_size)
        keep_columns(self.output, kept, self.value_size)
        self.value_heads = len(kept)
        self.keep_softmax_heads(kept)

    def keep_softmax_heads(self, kept: Sequence[int]) -> None:
        """The same before the values: of the softmax, and of queries and keys where no projection lies between."""
        self.softmax_heads = len(kept)
        self.keep_key_heads(kept)

    def keep_key_heads(self, kept: Sequence[int]) -> None:
        """The same of queries and keys."""
        keep_rows(self.query, kept, self.key_size)
        keep_rows(self.key, kept, self.key_size)
        self.key_heads = len(kept)

    def cost(self, queries: int, memory: int) -> Cost:
        """Of one example; a mechanism with more to it adds its own part."""
        linear = cost.linear(queries, self.query, self.output) + cost.linear(memory, self.key, self.value)
        widths = self.query.out_features, self.output.in_features
        return linear + cost.attention(queries, memory, *widths)


def keep_rows(linear: nn.Linear, kept: Sequence[int], size: int) -> None:
    """Leave only the kept heads, each `size` features of the map's output, in place."""
    linear.weight = nn.Parameter(linear.weight.detach().unflatten(0, (-1, size))[list(kept)].flatten(0, 1).clone())
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach().unflatten(0, (-1, size))[list(kept)].flatten().clone())
    linear.out_features = len(kept) * size


def keep_columns(linear: nn.Linear, kept: Sequence[int], size: int) -> None:
    """Leave only the kept heads, each `size` features of the map's input, in place."""
    linear.weight = nn.Parameter(linear.weight.detach().unflatten(1, (-1, size))[:, list(kept)].flatten(1).clone())
    linear.in_features = len(kept) * size


def check_sizes(**sizes: int) -> None:
    """Raises ValueError that names the size which is not at least 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: is {size}, must be at least 1")
