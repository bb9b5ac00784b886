"""The frame of an attention layer: what goes in and out of every mechanism, and what it declares of itself."""

# B batch, N queries, M memory, D hidden, H heads, K key size, V value size

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from attention.kernels.problem import Tap
from attention.layers.core import attend, check_backend

Rotation = Callable[[Tensor], Tensor]  # of heads [B, N, H, K] by their position


class AttentionLayer(nn.Module):
    """From `x` to queries, from `memory` to keys and values; attention; back to the width of `x`."""

    def __init__(
        self, softmax_heads: int, scale: float, dropout: float, backend: str, sdpa_refusal: str | None = None
    ) -> None:
        """sdpa_refusal: why torch's own kernel can never do what this layer asks of it; None: it can.

        Raises ValueError for a dropout out of range, an unknown backend, and for sdpa with a refusal: a layer that
        can't run isn't built.
        """
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: is {dropout}, must be at least 0 and under 1")
        check_backend(backend, {"sdpa": sdpa_refusal})
        self.softmax_heads = softmax_heads  # the heads that a position bias is added to
        self.scale = scale
        self.dropout = dropout
        self.backend = backend
        self.kernel: str | None = None  # the kernel that ran last
        self.tap: Tap | None = None  # sees and may change what the reference kernel computes, which then runs
        self.output: nn.Linear
        self.value_heads: int

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        rotary: Rotation | tuple[Rotation, Rotation] | None = None,
    ) -> Tensor:
        """x [B, N, D] attends to memory [B, M, D_M], or to itself where that is None -> [B, N, D].

        mask (bool, True = may attend) and bias are broadcastable to [B, softmax_heads, N, M]; causal: position n
        attends to 0..n only; rotary rotates queries and keys [B, N, H, K] by their position; with a memory it is a
        pair, of the queries and of the keys. Raises ValueError for one rotary with a memory, for shapes that don't fit,
        and for a backend that can't do the layer.
        """
        if memory is not None and callable(rotary):
            raise ValueError("rotary: rotates by the positions of one sequence; with a memory give a pair")
        memory = x if memory is None else memory
        query, key, value = self.project(x, memory)
        if rotary is not None:
            turn_query, turn_key = (rotary, rotary) if callable(rotary) else rotary
            query, key = turn_query(query), turn_key(key)
        return self.combine(self.attend(x, memory, query, key, value, mask=mask, bias=bias, causal=causal))

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, h_k, K], keys [B, M, h_k, K], values [B, M, h_v, V]."""
        raise NotImplementedError

    def attend(self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        """[B, N, h_v, V]; `options` as in `attention.layers.core.attend`."""
        dropout = self.dropout if self.training else 0.0
        return attend(
            query,
            key,
            value,
            scale=self.scale,
            dropout=dropout,
            backend=self.backend,
            tap=self.tap,
            tell=self._remember,
            **options,
        )

    def _remember(self, kernel: str) -> None:
        self.kernel = kernel

    def keep_heads(self, kept: Sequence[int]) -> None:
        """Leave only these of the value heads, and what they are computed from, in place, as if the others gave zeros.

        `kept`: indices; one that is repeated is there so many times. What other heads need through a projection stays.
        """
        raise NotImplementedError

    def head_projections(self) -> Iterator[nn.Parameter]:
        """The parameters that mix heads, P_l and P_w and their kind: they may train at a rate of their own."""
        yield from ()

    def combine(self, heads: Tensor) -> Tensor:
        """[B, N, h_v, V] -> [B, N, D]."""
        return self.output(heads.flatten(2))
