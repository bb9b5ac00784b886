"""Multi-head latent attention (DeepSeek-AI 2024, 2405.04434): keys and values made of a narrow latent vector."""

# B batch, M memory, H heads, K key size, V value size, L latent size

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from attention.layers import cost
from attention.layers.cost import Cost
from attention.layers.frame import Sizes, check_sizes
from attention.layers.projected import ProjectedAttention


class Attention(ProjectedAttention):
    """Multi-head attention with K = C U_k and V = C U_v of the latent C = M W_c, [B, M, L]: W_c U_k is of rank L.

    C is all that a cache keeps. With L the memory's width and W_c the identity it is multi-head attention. Of the
    paper's layer the low-rank queries are left out, which save memory in training only, and its rotary features of
    their own: a rotary position turns the whole keys, which then have to be made of C anew.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        latent_size: int | None = None,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        """latent_size: None is a quarter of the hidden size."""
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        memory_size = hidden_size if memory_size is None else memory_size
        latent_size = max(1, hidden_size // 4) if latent_size is None else latent_size
        check_sizes(memory_size=memory_size, latent_size=latent_size)
        super().__init__(
            hidden_size,
            latent_size,
            sizes,
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5,
            dropout=dropout,
            backend=backend,
        )
        self.latent = nn.Linear(memory_size, latent_size, bias=False)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K] of x; keys [B, M, H, K] and values [B, M, H, V] of the latent of the memory."""
        return super().project(x, self.latent(memory))

    def cost(self, queries: int, memory: int) -> Cost:
        """W_c takes m d_M L multiplies; the cache is the latent alone."""
        whole = super().cost(queries, memory) + cost.linear(memory, self.latent)
        return dataclasses.replace(whole, cached=memory * self.latent.out_features)
