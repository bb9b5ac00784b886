"""Multi-head latent attention (DeepSeek-AI 2024, 2405.04434): keys and values computed from a narrow latent vector."""

# B batch, M memory, H heads, K key size, V value size, L latent size

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from attention.layers import cost
from attention.layers.attention_layer import Sizes, check_sizes
from attention.layers.cost import Cost
from attention.layers.projected import ProjectedAttention

EPSILON = 1e-6  # of the norm, as in the authors' models


class Attention(ProjectedAttention):
    """Multi-head attention with K = C U_k and V = C U_v, where C = RMSNorm(M W_c) is the latent [B, M, L].

    latent_norm=False leaves the norm out. Then W_c U_k has at most rank L, and if L is the memory's width and W_c the
    identity, this is multi-head attention. A cache holds only C. Two parts of the paper's layer are left out: the
    low-rank queries, which save memory only in training, and the separate rotary features. A rotary position therefore
    rotates whole keys, so they have to be recomputed from C.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        latent_size: int | None = None,
        latent_norm: bool = True,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        """latent_size: None means a quarter of the hidden size. latent_norm: whether the latent has an RMS norm."""
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
        self.norm = nn.RMSNorm(latent_size, eps=EPSILON) if latent_norm else None

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K] from x; keys [B, M, H, K] and values [B, M, H, V] from the latent of the memory."""
        latent = self.latent(memory)
        if self.norm is not None:
            # also under autocast, the sums of squares have the dtype of the gains
            latent = self.norm(latent.to(self.norm.weight.dtype)).to(latent.dtype)
        return super().project(x, latent)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. W_c takes m d_M L multiplies; the cache holds only the latent."""
        norm = Cost(parameters=0 if self.norm is None else self.latent.out_features)
        whole = super().cost(queries, memory) + cost.linear(memory, self.latent) + norm
        return dataclasses.replace(whole, cached=memory * self.latent.out_features)
