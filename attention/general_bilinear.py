"""General bilinear multi-head attention (Shazeer et al. 2020, 2003.02436): each head has a full bilinear form."""

# B batch, N queries, M memory, D hidden, D_M memory width, H heads

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from attention.layers import cost
from attention.layers.attention_layer import AttentionLayer, Sizes, check_sizes
from attention.layers.cost import Cost
from attention.layers.projected import keep_columns, keep_rows


class Attention(AttentionLayer):
    """softmax(x W_h m^T) m in each head, with W_h [D, D_M], and an output map [H D_M, D].

    In multi-head attention with key and value size D_M, the key and value maps would be redundant. Here the keys and
    values are the memory itself, as in the authors' code (mesh_tensorflow/transformer/transformer_layers.py,
    GeneralBilinearSelfAttention).
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        memory_size: int | None = None,
        scaled: bool = True,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        memory_size = hidden_size if memory_size is None else memory_size
        check_sizes(hidden_size=hidden_size, memory_size=memory_size, heads=heads)
        scale = memory_size**-0.5 if scaled else 1.0
        super().__init__(heads, heads, scale=scale, dropout=dropout, backend=backend, scaled=scaled)
        self.query = nn.Linear(hidden_size, heads * memory_size, bias=linear_bias)
        self.output = nn.Linear(heads * memory_size, hidden_size, bias=linear_bias)

    @property
    def sizes(self) -> Sizes:
        """Numbers of heads, and widths; keys and values are as wide as the memory."""
        size = self.output.in_features // max(1, self.value_heads)
        return Sizes(self.softmax_heads, self.softmax_heads, self.value_heads, size, size)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries x W_h [B, N, H, D_M]; keys and values [B, M, H, D_M] are the memory, the same in every head."""
        query = self.query(x).unflatten(-1, (self.softmax_heads, memory.shape[-1]))
        shared = memory.unsqueeze(2).expand(-1, -1, self.softmax_heads, -1)
        return query, shared, shared

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads of W and of the output map, in place."""
        size = self.query.out_features // self.softmax_heads
        keep_rows(self.query, heads, size)
        keep_columns(self.output, heads, size)
        self.softmax_heads = self.value_heads = len(heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the two maps and of the two products of attention, n m h d_M multiplies each."""
        width = self.query.out_features
        linear = cost.linear(queries, self.query, self.output)
        # the cache is the memory itself
        kept = Cost(cached=memory * width // max(1, self.softmax_heads))
        return linear + cost.attention(queries, memory, width, width) + kept
