"""Value residual (Zhou et al. 2024, 2410.17897): the first layer's values are added to those of every other layer."""

# B batch, N queries, M memory, H heads, V value size

from __future__ import annotations

import torch
from torch import Tensor, nn

from attention import multi_head
from attention.layers.attention_layer import AttendOptions
from attention.layers.cost import Cost


class Attention(multi_head.Attention):
    """softmax(QK^T / sqrt(key_size)) (a V_1 + b V) in each head, where V_1 are the values of the model's first layer.

    a and b are learned in each layer and start at 1/2. V_1 = V in the first layer, in a single layer, and in attention
    to another sequence. The heads of one layer can't be pruned, because all layers use V_1. With a = 0 and b = 1 it is
    multi-head attention.
    """

    prunable = False

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
        self.balance = WeightedSum()

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, H, V]; the first layer leaves its values to the others."""
        first = value if options.earlier is None else options.earlier.setdefault("value", value)
        return super().attend(x, memory, query, key, self.balance(first, value), options)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of multi-head attention, plus two parameters. The sum of values is not a matrix product."""
        return super().cost(queries, memory) + Cost(parameters=2)


class WeightedSum(nn.Module):
    """The sum a V_1 + b V, with learned a and b."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with the mean of the two."""
        nn.init.constant_(self.weight, 0.5)

    def forward(self, first: Tensor, own: Tensor) -> Tensor:
        """Combine two tensors of the same shape into one of that shape."""
        return self.weight[0] * first + self.weight[1] * own
