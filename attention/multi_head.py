"""Multi-head attention (Vaswani et al. 2017, 1706.03762). Heads, key size and value size don't depend on hidden_size.

A key_size above hidden_size / heads is an enlarged key size. If both sizes are set, it is the fixed head size of
2002.07028.
"""

from __future__ import annotations

from attention.layers.attention_layer import Sizes
from attention.layers.projected import ProjectedAttention


class Attention(ProjectedAttention):
    """softmax(QK^T / sqrt(key_size)) V in each head, concatenated and projected; scaled=False omits the division.

    hidden_size: D, the width of inputs and outputs. key_size and value_size: the widths of a head; None means
    hidden_size / heads. memory_size: D_M, the width of the memory; None means hidden_size. linear_bias: whether the
    four maps have biases. dropout: the probability that a weight is dropped in training. backend: auto, or the kernel
    that must run.

    The other mechanisms share these arguments. Raises ValueError for a size under 1, for heads that don't divide
    hidden_size and have no size of their own, for a dropout out of range, and for an unknown backend. One that can't
    run the mechanism is refused by `forward`.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        scaled: bool = True,
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
            scale=sizes.key_size**-0.5 if scaled else 1.0,
            scaled=scaled,
            dropout=dropout,
            backend=backend,
        )
