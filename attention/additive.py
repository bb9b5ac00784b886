"""Additive attention (Bahdanau, Cho, Bengio 2015, 1409.0473): a small network compares a query with a key."""

# B batch, N queries, M memory, H heads, K key size

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attention.kernels.problem import STAGES
from attention.layers.attention_layer import AttendOptions, Sizes
from attention.layers.cost import Cost
from attention.layers.projected import ProjectedAttention, kept
from attention.layers.recompute import recomputed

# the most values of tanh(...) that exist at once, unless one query row of every example has more
BLOCK_VALUES = 2**20


class Attention(ProjectedAttention):
    """softmax(v^T tanh(W_q x + W_k m)) V in each head; one head is the paper's form.

    The logits enter `attend` as the bias of a dot product of width 0, so the maps [B, H, N, M] are kept for the
    backward pass. The tanh is K times larger. It is computed for a few query rows at a time, and recomputed in the
    backward pass.
    """

    stages = STAGES[1:]  # its logits are not QK^T

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
            scale=1.0,
            dropout=dropout,
            backend=backend,
        )
        self.comparison = Comparison(heads, sizes.key_size)

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, h_v, V]; the logits of the comparison are passed as the bias."""
        logits = self.comparison(query, key)
        return super().attend(x, memory, query[..., :0], key[..., :0], value, options.with_bias(logits))

    def keep_key_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads of queries and keys, and of the vectors v, in place."""
        super().keep_key_heads(heads)
        self.comparison.weight = kept(self.comparison.weight, heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. The product with v takes n m h d_k multiplies, as QK^T would; the tanh is not counted."""
        return super().cost(queries, memory) + Cost(parameters=self.comparison.weight.numel())


class Comparison(nn.Module):
    """The comparison v^T tanh(q + k) of a query with a key in each head, with v [H, K]."""

    def __init__(self, heads: int, key_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, key_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw v with variance 1 / key_size, so that the logits start with a variance of at most 1."""
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Compare each query with each key: query [B, N, H, K], key [B, M, H, K] -> logits [B, H, N, M]."""
        rows = max(1, BLOCK_VALUES // max(1, key.numel()))
        return torch.cat([recomputed(self._compare, part, key) for part in query.split(rows, dim=1)], dim=2)

    def _compare(self, query: Tensor, key: Tensor) -> Tensor:
        query, key = query.transpose(1, 2), key.transpose(1, 2)
        compared = torch.tanh(query[:, :, :, None] + key[:, :, None])
        # [B, H, N M, K] times [H, K, 1]; an einsum would copy the large factor to move H to the front
        return (compared.flatten(2, 3) @ self.weight[:, :, None]).view(compared.shape[:4])
