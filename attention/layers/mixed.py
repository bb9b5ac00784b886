"""The layer whose maps are mixed across heads, by P_l before the softmax and by P_w after it."""

# B batch, N queries, M memory, D hidden, D_M memory width; h_k, h, h_v: heads of keys, of the softmax, of values

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from attention.kernels.problem import Projection
from attention.layers.attention_layer import AttendOptions
from attention.layers.cost import Cost
from attention.layers.projected import ProjectedAttention


class Mixing(nn.Module, ABC):
    """P_l or P_w: computes the projection of the positions of a sequence and a memory."""

    mixes = True  # False: the maps stay as they are

    @abstractmethod
    def forward(self, x: Tensor, memory: Tensor) -> Projection:
        """The projection at each position of x [B, N, D] and memory [B, M, D_M]."""

    @abstractmethod
    def keep_mixed_heads(self, heads: Sequence[int]) -> None:
        """Keep only these of the heads that the maps are mixed into, in place."""

    @abstractmethod
    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of P and of the products of maps with it."""


class MixedAttention(ProjectedAttention):
    """A projected layer whose logits are mixed by `logits_projection`, and whose weights by `weights_projection`."""

    logits_projection: Mixing  # P_l, h_k -> h
    weights_projection: Mixing  # P_w, h -> h_v

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, h_v, V], with maps mixed by P_l and P_w."""
        options = options._replace(
            logits_projection=self.logits_projection(x, memory), weights_projection=self.weights_projection(x, memory)
        )
        return super().attend(x, memory, query, key, value, options)

    def head_mixing_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of P_l and P_w."""
        yield from self.logits_projection.parameters()
        yield from self.weights_projection.parameters()

    def keep_softmax_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads after P_w, in place. Without a P_w, keep only these heads of the softmax."""
        if self.weights_projection.mixes:
            self.weights_projection.keep_mixed_heads(heads)
        else:
            super().keep_softmax_heads(heads)

    def keep_key_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads after P_l, in place. Without a P_l, keep only these heads of queries and keys."""
        if self.logits_projection.mixes:
            self.logits_projection.keep_mixed_heads(heads)
        else:
            super().keep_key_heads(heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the linear maps and products of attention, and of mixing by P_l and P_w."""
        mixing = self.logits_projection.cost(queries, memory) + self.weights_projection.cost(queries, memory)
        return super().cost(queries, memory) + mixing
