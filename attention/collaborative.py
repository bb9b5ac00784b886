"""Collaborative attention (Cordonnier et al. 2020, 2006.16362): heads share queries and keys and reweigh them."""

# B batch, N queries, M memory, H heads, K shared key width

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.layers import cost
from attention.layers.attention_layer import AttendOptions, Sizes
from attention.layers.cost import Cost
from attention.layers.projected import ProjectedAttention, keep_rows, kept

START_STD = 0.2  # standard deviation of a random mixing, as in the authors' code (epfml/collaborative-attention)


class Attention(ProjectedAttention):
    """softmax((Q diag(m_i) K^T + (M b_i)^T) / sqrt(key_size)) V_i in head i, with Q and K of width heads * key_size.

    Q and K are as wide as all heads of multi-head attention together (the paper's D_k). `mixing` holds the vectors m_i
    [heads, D_k]. `content_bias` holds the b_i, which replace the biases of Q and K and start at 0; the row (M b_i)^T is
    added to the logits of every query.
    start: how the mixing starts. With `concatenated`, m_i is 1 on the features of head i and 0 elsewhere, which is
    multi-head attention, except that a rotary position rotates the features that the heads share and not those of each
    head. With `random`, it is drawn.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        start: Literal["random", "concatenated"] = "random",
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        if start not in ("random", "concatenated"):
            raise ValueError(f"start: is {start!r}, must be random or concatenated")
        super().__init__(
            hidden_size,
            memory_size,
            sizes,
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5,
            dropout=dropout,
            backend=backend,
        )
        # the heads share these features, so a head has no key size of its own
        width = heads * sizes.key_size
        self.key_size = width
        self.query = nn.Linear(hidden_size, width, bias=False)
        self.key = nn.Linear(self.key.in_features, width, bias=False)
        self.content_bias = ContentBias(self.key.in_features, heads) if linear_bias else None
        self.mixing = Mixing(heads, sizes.key_size, start)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K], reweighed for each head; keys [B, M, H, K], the same in all; values [B, M, H, V]."""
        query = self.mixing(self.query(x))
        key = self.key(memory).unsqueeze(2).expand(-1, -1, self.key_heads, -1)
        return query, key, self.value(memory).unflatten(-1, (self.value_heads, self.value_size))

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, h_v, V]; a content bias M b_i is one more feature of the keys."""
        if self.content_bias is not None:
            query = F.pad(query, (0, 1), value=1.0)
            key = torch.cat([key, self.content_bias(memory).unsqueeze(-1)], dim=-1)
        return super().attend(x, memory, query, key, value, options)

    def keep_key_heads(self, heads: Sequence[int]) -> None:
        """Keep only these vectors m_i and b_i, in place. Queries and keys stay whole, because the heads share them."""
        self.mixing.weight = kept(self.mixing.weight, heads)
        if self.content_bias is not None:
            keep_rows(self.content_bias, heads, 1)
        self.key_heads = len(heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. QK^T takes n m h D_k multiplies, and n m h more with content biases.

        Q diag(m_i) is not a matrix product and not counted.
        """
        linear = cost.linear(queries, self.query, self.output)
        of_memory = [self.key, self.value, *([] if self.content_bias is None else [self.content_bias])]
        linear += cost.linear(memory, *of_memory) + cost.cache(memory, *of_memory)
        weights = self.mixing.weight.numel()
        features = weights if self.content_bias is None else weights + self.key_heads
        return linear + cost.attention(queries, memory, features, self.output.in_features) + Cost(parameters=weights)


class ContentBias(nn.Linear):
    """The vectors b_i, [H, D_M]."""

    def __init__(self, memory_size: int, heads: int) -> None:
        super().__init__(memory_size, heads, bias=False)

    def reset_parameters(self) -> None:
        """Start at 0, as the biases of queries and keys do."""
        nn.init.zeros_(self.weight)


class Mixing(nn.Module):
    """The vectors m_i, [H, K]."""

    def __init__(self, heads: int, key_size: int, start: str) -> None:
        super().__init__()
        self.key_size, self.start = key_size, start
        self.weight = nn.Parameter(torch.empty(heads, heads * key_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors, or set each to 1 on the features of its own head, depending on `start`."""
        if self.start == "random":
            nn.init.normal_(self.weight, std=START_STD)
            return
        own = torch.eye(len(self.weight), device=self.weight.device).repeat_interleave(self.key_size, dim=1)
        with torch.no_grad():
            self.weight.copy_(own)

    def forward(self, query: Tensor) -> Tensor:
        """Reweigh the queries for each head: [B, N, K] -> [B, N, H, K]."""
        return query.unsqueeze(2) * self.weight
