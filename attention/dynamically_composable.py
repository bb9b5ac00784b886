"""Dynamically composable attention (DCMHA; Xiao et al. 2024, 2405.08553): each pair of positions mixes its heads."""

# B batch, N positions, M memory, D width, R rank; h heads before mixing, g heads after it

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.kernels.problem import Projection
from attention.layers.attention_layer import Sizes, check_sizes
from attention.layers.cost import Cost
from attention.layers.mixed import MixedAttention, Mixing
from attention.layers.projected import kept

NORM_EPSILON = 1e-6


class Attention(MixedAttention):
    """Multi-head attention whose logits, and whose weights, are mixed across heads by I + F(x_n) + G(m_m).

    F and G give a matrix of a low rank plus a diagonal one for each query n and each memory position m. They start
    near 0, which is multi-head attention. As in the authors' models, I is fixed, not learned.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        rank: int = 2,
        scaled: bool = True,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        check_sizes(rank=rank)
        super().__init__(
            hidden_size,
            memory_size,
            sizes,
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5 if scaled else 1.0,
            scaled=scaled,
            dropout=dropout,
            backend=backend,
        )
        self.logits_projection = Composition(heads, hidden_size, self.key.in_features, rank)
        self.weights_projection = Composition(heads, hidden_size, self.key.in_features, rank)


class Composition(Mixing):
    """I + F(x_n) + G(m_m), [h, g] for each pair of positions."""

    def __init__(self, heads: int, query_size: int, memory_size: int, rank: int) -> None:
        super().__init__()
        self.query = DynamicMatrix(query_size, heads, rank)
        self.memory = DynamicMatrix(memory_size, heads, rank)
        self.heads, self.kept_heads = heads, list(range(heads))  # the heads before mixing; those that are left after it

    def forward(self, x: Tensor, memory: Tensor) -> Projection:
        """The projection at each position of x [B, N, D] and memory [B, M, D_M]."""
        identity = torch.eye(self.heads, device=x.device)[:, self.kept_heads]
        return Projection(identity, self.query(x, identity), self.memory(memory, identity))

    def keep_mixed_heads(self, heads: Sequence[int]) -> None:
        """Keep only these of the heads that the maps are mixed into, in place."""
        for matrix in (self.query, self.memory):
            matrix.second = kept(matrix.second, heads, -1)
            matrix.gate = kept(matrix.gate, heads, -1)
        self.kept_heads = [self.kept_heads[head] for head in heads]

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of both matrices, of which the memory's are cached, and of the products of maps with them."""
        size = self.heads * len(self.kept_heads)
        matrices = self.query.cost(queries) + self.memory.cost(memory)
        return matrices + Cost(0, 2 * queries * memory * size, memory * size)


class DynamicMatrix(nn.Module):
    """A matrix [h, g] for each position, W_1^T W_2 + diag(tanh(x W_d)).

    W_1 [R, h] and W_2 [R, g] are linear in gelu(x W), which has 2 R h features. Each row of W_1 is divided by the root
    of its mean square.
    """

    def __init__(self, size: int, heads: int, rank: int) -> None:
        super().__init__()
        hidden = 2 * rank * heads
        self.hidden = nn.Parameter(torch.empty(size, hidden))
        self.first = nn.Parameter(torch.empty(hidden, rank, heads))
        self.second = nn.Parameter(torch.empty(hidden, rank, heads))
        self.gate = nn.Parameter(torch.empty(size, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the maps with the authors' standard deviations (DCFormer, jax/MaxText/layers/dc_attentions.py)."""
        size, hidden = self.hidden.shape
        rank, heads = self.first.shape[1:]
        nn.init.normal_(self.hidden, std=math.sqrt(2 / (size + hidden)))
        for factor in (self.first, self.second):
            nn.init.normal_(factor, std=0.02 / (math.sqrt(hidden) * (heads + rank)))
        nn.init.normal_(self.gate, std=0.005 * math.sqrt(2 / (size + heads)))

    def forward(self, x: Tensor, identity: Tensor) -> Tensor:
        """Compute the matrices, [B, N, D] -> [B, N, h, g]; identity [h, g] has a 1 for each head that is kept."""
        hidden = F.gelu(x @ self.hidden)
        first, second = (
            (hidden @ factor.flatten(1)).unflatten(-1, factor.shape[1:]) for factor in (self.first, self.second)
        )
        first = F.rms_norm(first, first.shape[-1:], eps=NORM_EPSILON)
        gate = torch.tanh(x @ self.gate)
        return first.transpose(-1, -2) @ second + identity * gate.unsqueeze(-2)

    def cost(self, positions: int) -> Cost:
        """Cost of the maps, and of the product of W_1 and W_2, at so many positions."""
        parameters = sum(each.numel() for each in self.parameters())
        rank, heads = self.first.shape[1:]
        return Cost(parameters, positions * (parameters + rank * heads * self.second.shape[2]))
