"""Value residual (Zhou et al. 2024, 2410.17897): the values of the first layer are added to those of every other."""

# B batch, N queries, M memory, H heads, V value size

from __future__ import annotations

import torch
from torch import Tensor, nn

from attention import multi_head
from attention.layers.cost import Cost
from attention.layers.frame import AttendOptions


class Attention(multi_head.Attention):
    """softmax(QK^T / sqrt(key_size)) (a V_1 + b V) in each head, V_1 the values of the model's first layer.

    a and b are learned in each layer and start at a half. In the first layer, and in one that stands alone, V_1 = V;
    so it is in every attention from one sequence to another. Heads of one layer can't be left out: those of V_1 belong
    to all layers. a = 0 and b = 1 is multi-head attention.
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
        super().__init__(hidden_size, heads, key_size, value_size, memory_size, scaled, linear_bias, dropout, backend)
        self.balance = Balance()

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """[B, N, H, V]; the first layer leaves its values to the others."""
        first = value if options.earlier is None else options.earlier.setdefault("value", value)
        return super().attend(x, memory, query, key, self.balance(first, value), options)

    def cost(self, queries: int, memory: int) -> Cost:
        """Two parameters more than multi-head; the sum of values is no product of matrices."""
        return super().cost(queries, memory) + Cost(parameters=2)


class Balance(nn.Module):
    """a first + b own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin with the mean of the two."""
        nn.init.constant_(self.weight, 0.5)

    def forward(self, first: Tensor, own: Tensor) -> Tensor:
        """Two tensors of a shape -> another of it."""
        return self.weight[0] * first + self.weight[1] * own
