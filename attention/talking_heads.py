"""Talking-heads attention (Shazeer et al. 2020, 2003.02436): heads mix before and after the softmax."""

# B batch, N queries, M memory, D hidden; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attention.kernels.problem import Projection
from attention.layers import cost
from attention.layers.attention_layer import Sizes, check_sizes, equal_share
from attention.layers.cost import Cost
from attention.layers.mixed import MixedAttention, Mixing
from attention.layers.projected import kept

# standard deviation of a standard normal cut off at two standard deviations
TRUNCATED_STD = 0.8796256610342398
# variance of a dynamic term of P relative to the static one. The authors' code warns of "learning difficulties when
# this value is too large" (mesh_tensorflow/transformer/transformer_layers.py, dynamic_projections_init_scale)
DYNAMIC_VARIANCE = 1e-2


class Attention(MixedAttention):
    """Multi-head attention whose logits are mixed across heads by P_l [h_k, h] and whose weights by P_w [h, h_v].

    static: which of the two have a learned matrix. dynamic: which terms are computed from x or from the memory m, for
    the logits (x2l, m2l) or the weights (x2w, m2w); they are added to the static matrices. Without a projection, the
    numbers of heads before and after must be equal. If both projections are the identity, this is exactly multi-head
    attention.
    """

    logits_projection: HeadProjection
    weights_projection: HeadProjection

    def __init__(
        self,
        hidden_size: int,
        key_heads: int,
        softmax_heads: int | None = None,
        value_heads: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        scaled: bool = True,
        static: Sequence[Literal["logits", "weights"]] = ("logits", "weights"),
        dynamic: Sequence[Literal["x2l", "m2l", "x2w", "m2w"]] = (),
        start: Literal["random", "identity"] = "random",
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        softmax_heads = key_heads if softmax_heads is None else softmax_heads
        value_heads = softmax_heads if value_heads is None else value_heads
        key_size = equal_share(hidden_size, key_heads, "key_heads") if key_size is None else key_size
        value_size = equal_share(hidden_size, value_heads, "value_heads") if value_size is None else value_size
        sizes = Sizes(key_heads, softmax_heads, value_heads, key_size, value_size)
        check_sizes(**sizes._asdict())
        _check_choice("static", static, ("logits", "weights"))
        _check_choice("dynamic", dynamic, ("x2l", "m2l", "x2w", "m2w"))
        if start not in ("random", "identity"):
            raise ValueError(f"start: is {start!r}, must be random or identity")
        super().__init__(
            hidden_size,
            memory_size,
            sizes,
            linear_bias=linear_bias,
            scale=key_size**-0.5 if scaled else 1.0,
            scaled=scaled,
            dropout=dropout,
            backend=backend,
        )
        self.logits_projection = HeadProjection(
            ("key_heads", key_heads),
            ("softmax_heads", softmax_heads),
            static="logits" in static,
            query_size=hidden_size if "x2l" in dynamic else 0,
            memory_size=self.key.in_features if "m2l" in dynamic else 0,
            start=start,
        )
        self.weights_projection = HeadProjection(
            ("softmax_heads", softmax_heads),
            ("value_heads", value_heads),
            static="weights" in static,
            query_size=hidden_size if "x2w" in dynamic else 0,
            memory_size=self.key.in_features if "m2w" in dynamic else 0,
            start=start,
        )

    def static_projections(self) -> tuple[Tensor | None, Tensor | None]:
        """The static terms of P_l and P_w."""
        return self.logits_projection.static, self.weights_projection.static


class HeadProjection(Mixing):
    """P_l or P_w from h_in to h_out heads, as the sum of its terms. Without terms, the maps stay as they are.

    heads and mixed_heads: h_in and h_out, each after its name in messages. static [h_in, h_out] is one matrix for all
    positions. query [D, h_in, h_out] and memory [D_M, h_in, h_out] give each position a matrix (x2l or x2w, m2l or
    m2w). query_size is D and memory_size is D_M, or 0 to omit the term.

    Raises ValueError if h_in and h_out differ and there is no term, or the static one starts as the identity.
    """

    def __init__(
        self,
        heads: tuple[str, int],
        mixed_heads: tuple[str, int],
        *,
        static: bool,
        query_size: int,
        memory_size: int,
        start: str,
    ) -> None:
        super().__init__()
        (name, size), (mixed_name, mixed_size) = heads, mixed_heads
        self.mixes = static or query_size > 0 or memory_size > 0
        if size != mixed_size and not self.mixes:
            raise ValueError(f"{name}: is {size}, must equal {mixed_name} = {mixed_size} as nothing mixes them")
        if size != mixed_size and static and start == "identity":
            raise ValueError(f"start: identity needs {name} = {size} to equal {mixed_name} = {mixed_size}; use random")
        self.heads, self.mixed_heads, self.start = size, mixed_size, start
        self.query_size, self.memory_size = query_size, memory_size
        self.static = nn.Parameter(torch.empty(size, mixed_size)) if static else None
        self.query = nn.Parameter(torch.empty(query_size, size, mixed_size)) if query_size else None
        self.memory = nn.Parameter(torch.empty(memory_size, size, mixed_size)) if memory_size else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw P, or set it to the identity, depending on `start`.

        random: P is drawn from a truncated normal distribution of variance 1 / h_in, as in the authors' code, so that
        mixing keeps the variance of the logits. The mixed weights then have either sign and don't sum to 1.
        identity: training starts from multi-head attention, as in later work.
        A dynamic term starts with a hundredth of the random variance.
        """
        if self.static is not None and self.start == "identity":
            nn.init.eye_(self.static)
        elif self.static is not None:
            _truncated_normal_(self.static, 1 / self.heads)
        for term, size in ((self.query, self.query_size), (self.memory, self.memory_size)):
            if term is not None:
                _truncated_normal_(term, DYNAMIC_VARIANCE / (self.heads * size))

    def forward(self, x: Tensor, memory: Tensor) -> Projection:
        """The projection at each position of x [B, N, D] and memory [B, M, D_M]."""
        return Projection(self.static, _by_position(x, self.query), _by_position(memory, self.memory))

    def keep_mixed_heads(self, heads: Sequence[int]) -> None:
        """Keep only these of the heads that P mixes into, in place."""
        for name, term in self.named_parameters():
            setattr(self, name, kept(term, heads, -1))
        self.mixed_heads = len(heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of P and of the products of maps with it."""
        static = self.static is not None
        return cost.mixing(queries, memory, self.heads, self.mixed_heads, static, self.query_size, self.memory_size)


def _by_position(x: Tensor, weight: Tensor | None) -> Tensor | None:
    """Compute a matrix for each position: [B, N, D] and [D, h_in, h_out] -> [B, N, h_in, h_out]."""
    return None if weight is None else (x @ weight.flatten(1)).unflatten(-1, weight.shape[1:])


def _truncated_normal_(tensor: Tensor, variance: float) -> None:
    """Fill the tensor from a normal distribution cut off at two standard deviations, by inverting its CDF.

    torch's trunc_normal_ reads the values that it has drawn, which meta tensors don't have. For meta tensors nothing is
    drawn here, because erfinv_ would import torch's compiler.
    """
    if tensor.is_meta:
        return
    edge = math.erf(2 / math.sqrt(2))
    with torch.no_grad():
        tensor.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2 * variance) / TRUNCATED_STD)


def _check_choice(name: str, values: Sequence[Any], allowed: tuple[str, ...]) -> None:
    if len(set(values)) < len(values) or not set(values) <= set(allowed):
        raise ValueError(f"{name}: is {values}, must be of {', '.join(allowed)}, each at most once")
