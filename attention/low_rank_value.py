"""Multi-head attention with the value map of a head written as a d x d map of low rank: down to value_size, then up.

The up maps of all heads side by side are the output matrix. Parameters and results are therefore those of `multi_head`,
and only the order of the products differs.
"""

# b batch, n queries, m memory, d hidden, h heads, v value size

from __future__ import annotations

import torch
from torch import Tensor

from attention import multi_head
from attention.layers import cost
from attention.layers.cost import Cost


class Attention(multi_head.Attention):
    """Each head adds softmax(QK^T / sqrt(key_size)) M W_down W_up to the output.

    W_down is the head's part of the map `value`, and W_up its part of `output`.
    """

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K], keys [B, M, H, K] and values [B, M, H, D], mapped down to value_size and up to D."""
        query, key, down = super().project(x, memory)
        up = self.output.weight.unflatten(1, (self.value_heads, self.value_size))
        return query, key, torch.einsum("bmhv,dhv->bmhd", down, up)

    def combine(self, heads: Tensor) -> Tensor:
        """Sum over the heads: [B, N, H, D] -> [B, N, D]."""
        output = heads.sum(2)
        return output if self.output.bias is None else output + self.output.bias.to(output.dtype)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. The up maps take m h d_v d multiplies; UV has the hidden size in every head, n m h d.

        The cache holds the keys and the values mapped down.
        """
        linear = cost.linear(queries, self.query) + cost.linear(memory, self.key, self.value, self.output)
        width = self.value_heads * self.output.out_features
        products = cost.attention(queries, memory, self.query.out_features, width)
        return linear + products + cost.cache(memory, self.key, self.value)
