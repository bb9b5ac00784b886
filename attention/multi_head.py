"""Multi-head attention (Vaswani et al. 2017, 1706.03762), with heads, key size and value size free of the hidden size.

key_size over hidden_size / heads is the enlarged key size, both sizes free the fixed head size (2002.07028).
"""

from __future__ import annotations

from attention.layers.frame import Sizes
from attention.layers.projected import ProjectedAttention, check_sizes


class Attention(ProjectedAttention):
    """softmax(QK^T / sqrt(key_size)) V in `heads` heads, concatenated and projected; unscaled: without the division."""

    def __init__(
        self,
        hidden_size: int,
        memory_size: int,
        heads: int,
        key_size: int,
        value_size: int,
        scaled: bool,
        linear_bias: bool,
        dropout: float,
        backend: str,
    ) -> None:
        check_sizes(heads=heads, key_size=key_size)
        super().__init__(
            hidden_size,
            memory_size,
            Sizes(heads, heads, heads, key_size, value_size),
            linear_bias=linear_bias,
            scale=key_size**-0.5 if scaled else 1.0,
            scaled=scaled,
            dropout=dropout,
            backend=backend,
        )
