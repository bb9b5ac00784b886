"""The layer with the papers' four linear maps, and functions that remove heads from parameters and linear maps."""

# B batch, N queries, M memory, D hidden, H heads, K key size, V value size

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attention.layers import cost
from attention.layers.attention_layer import AttentionLayer, Sizes, check_sizes
from attention.layers.cost import Cost


class ProjectedAttention(AttentionLayer):
    """A layer with the linear maps `query`, `key`, `value` and `output`, for heads of any number and size."""

    def __init__(
        self,
        hidden_size: int,
        memory_size: int | None,
        sizes: Sizes,
        *,
        linear_bias: bool,
        scale: float,
        dropout: float,
        backend: str,
        scaled: bool = True,
    ) -> None:
        """memory_size: None means the hidden size. linear_bias: whether the four maps have biases.

        The other arguments are those of `AttentionLayer`.

        Raises ValueError for a size under 1.
        """
        memory_size = hidden_size if memory_size is None else memory_size
        check_sizes(hidden_size=hidden_size, memory_size=memory_size, **sizes._asdict())
        super().__init__(
            sizes.softmax_heads,
            sizes.value_heads,
            scale=scale,
            dropout=dropout,
            backend=backend,
            scaled=scaled,
        )
        self.key_heads, self.key_size, self.value_size = sizes.key_heads, sizes.key_size, sizes.value_size
        self.query = nn.Linear(hidden_size, self.key_heads * self.key_size, bias=linear_bias)
        self.key = nn.Linear(memory_size, self.key_heads * self.key_size, bias=linear_bias)
        self.value = nn.Linear(memory_size, self.value_heads * self.value_size, bias=linear_bias)
        self.output = nn.Linear(self.value_heads * self.value_size, hidden_size, bias=linear_bias)

    @property
    def sizes(self) -> Sizes:
        """The current numbers of heads and their widths."""
        return Sizes(self.key_heads, self.softmax_heads, self.value_heads, self.key_size, self.value_size)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, h_k, K], keys [B, M, h_k, K], values [B, M, h_v, V] from x [B, N, D], memory [B, M, D_M]."""
        return (
            self.query(x).unflatten(-1, (self.key_heads, self.key_size)),
            self.key(memory).unflatten(-1, (self.key_heads, self.key_size)),
            self.value(memory).unflatten(-1, (self.value_heads, self.value_size)),
        )

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Keep only these value heads, in place; `keep_softmax_heads` does the same for what comes before them."""
        keep_rows(self.value, heads, self.value_size)
        keep_columns(self.output, heads, self.value_size)
        self.value_heads = len(heads)
        self.keep_softmax_heads(heads)

    def keep_softmax_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads of the softmax, in place, and what they are computed from."""
        self.softmax_heads = len(heads)
        self.keep_key_heads(heads)

    def keep_key_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads of queries and keys, in place."""
        keep_rows(self.query, heads, self.key_size)
        keep_rows(self.key, heads, self.key_size)
        self.key_heads = len(heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the four maps and of the two products of attention; a mechanism adds the cost of its own parts."""
        linear = cost.linear(queries, self.query, self.output) + cost.linear(memory, self.key, self.value)
        widths = self.key_heads * self.key_size, self.value_heads * self.value_size
        return linear + cost.attention(queries, memory, *widths) + cost.cache(memory, self.key, self.value)


def kept(parameter: Tensor, heads: Sequence[int], dim: int = 0) -> nn.Parameter:
    """A new parameter with only these heads, which are the indices of a dimension."""
    indices = torch.tensor(list(heads), dtype=torch.int64, device=parameter.device)
    return nn.Parameter(parameter.detach().index_select(dim, indices))


def keep_rows(linear: nn.Linear, heads: Sequence[int], size: int) -> None:
    """Keep only these heads in the map's output, in place; each has `size` features."""
    linear.weight = nn.Parameter(linear.weight.detach().unflatten(0, (-1, size))[list(heads)].flatten(0, 1).clone())
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach().unflatten(0, (-1, size))[list(heads)].flatten().clone())
    linear.out_features = len(heads) * size


def keep_columns(linear: nn.Linear, heads: Sequence[int], size: int) -> None:
    """Keep only these heads in the map's input, in place; each has `size` features."""
    linear.weight = nn.Parameter(linear.weight.detach().unflatten(1, (-1, size))[:, list(heads)].flatten(1).clone())
    linear.in_features = len(heads) * size
