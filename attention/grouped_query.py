"""Grouped-query attention (Ainslie et al. 2023, 2305.13245): the heads of a group share a key and a value map."""

# B batch, N queries, M memory, H heads, G groups, K key size, V value size

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attention.layers.attention_layer import Sizes
from attention.layers.projected import ProjectedAttention, keep_columns, keep_rows


class Attention(ProjectedAttention):
    """softmax(Q_i K_g^T / sqrt(key_size)) V_g in head i of group g; neighbouring heads make a group.

    groups = heads is multi-head attention, and groups = 1 is multi-query attention. If the number of groups doesn't
    divide the number of heads, some groups have one head more than others. Raises ValueError unless groups is 1 to
    heads.
    """

    group_of_head: Tensor  # int64 [H]

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        groups: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        """groups: None means 2, or 1 if there is one head."""
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        groups = min(2, heads) if groups is None else groups
        if not 1 <= groups <= heads:
            wanted = "at least 1" if groups < 1 else f"at most heads = {heads}"
            raise ValueError(f"groups: is {groups}, must be {wanted}")
        super().__init__(
            hidden_size,
            memory_size,
            sizes,
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5,
            dropout=dropout,
            backend=backend,
        )
        self.key = nn.Linear(self.key.in_features, groups * self.key_size, bias=linear_bias)
        self.value = nn.Linear(self.value.in_features, groups * self.value_size, bias=linear_bias)
        self.register_buffer("group_of_head", torch.arange(heads) * groups // heads, persistent=False)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, H, K], keys [B, M, H, K] and values [B, M, H, V]; keys and values are the same in a group."""
        query = self.query(x).unflatten(-1, (self.key_heads, self.key_size))
        key = self.key(memory).unflatten(-1, (-1, self.key_size)).index_select(2, self.group_of_head)
        value = self.value(memory).unflatten(-1, (-1, self.value_size)).index_select(2, self.group_of_head)
        return query, key, value

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads of queries and output, in place. Keys and values stay, as they belong to the groups."""
        keep_rows(self.query, heads, self.key_size)
        keep_columns(self.output, heads, self.value_size)
        self.group_of_head = self.group_of_head[list(heads)]
        self.key_heads = self.softmax_heads = self.value_heads = len(heads)
