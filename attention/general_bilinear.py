"""General bilinear multi-head attention (Shazeer et al. 2020, 2003.02436, after talking heads): a full form a head."""

# B batch, N queries, M memory, D hidden, D_M memory width, H heads

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attention import multi_head
from attention.layers import cost
from attention.layers.cost import Cost
from attention.layers.frame import AttentionLayer
from attention.layers.projected import check_sizes, keep_columns, keep_rows


class Attention(AttentionLayer):
    """softmax(x W_h m^T) m in each head, with W_h [D, D_M], and an output map [H D_M, D].

    Multi-head attention with key and value size D_M has two maps too many: here keys and values are the memory itself
    (the authors' form, mesh_tensorflow/transformer/transformer_layers.py, GeneralBilinearSelfAttention).
    """

    def __init__(
        self,
        hidden_size: int,
        memory_size: int,
        heads: int,
        scaled: bool,
        linear_bias: bool,
        dropout: float,
        backend: str,
    ) -> None:
        check_sizes(hidden_size=hidden_size, memory_size=memory_size, heads=heads)
        super().__init__(heads, scale=memory_size**-0.5 if scaled else 1.0, dropout=dropout, backend=backend)
        self.value_heads = heads
        self.query = nn.Linear(hidden_size, heads * memory_size, bias=linear_bias)
        self.output = nn.Linear(heads * memory_size, hidden_size, bias=linear_bias)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.query(x).unflatten(-1, (self.softmax_heads, memory.shape[-1]))
        # in the dtype of the products already, so that no cast makes a copy a head
        shared = memory.to(query.dtype).unsqueeze(2).expand(-1, -1, self.softmax_heads, -1)
        return query, shared, shared

    def keep_heads(self, kept: Sequence[int]) -> None:
        size = self.query.out_features // self.softmax_heads
        keep_rows(self.query, kept, size)
        keep_columns(self.output, kept, size)
        self.softmax_heads = self.value_heads = len(kept)

    def cost(self, queries: int, memory: int) -> Cost:
        """Of one example."""
        width = self.query.out_features
        linear = cost.linear(queries, self.query, self.output)
        return linear + cost.attention(queries, memory, width, width)

    @classmethod
    def multi_head_limit(cls) -> tuple[nn.Module, nn.Module] | None:
        """The multi-head layer of key and value size D_M whose key and value maps are the identity in each head."""
        shared: dict[str, Any] = {"hidden_size": 12, "memory_size": 10, "heads": 3, "scaled": True}
        shared |= {"linear_bias": True, "dropout": 0.0, "backend": "auto"}
        limit, layer = cls(**shared), multi_head.Attention(**shared, key_size=10, value_size=10)
        layer.load_state_dict(limit.state_dict(), strict=False)
        for same in (layer.key, layer.value):
            nn.init.zeros_(same.bias)
            same.weight.data.copy_(torch.eye(10).repeat(3, 1))
        return limit, layer
