"""Rotary position encoding (Su et al. 2021, 2104.09864): dot products depend on the distance between positions."""

# B batch, N positions, H heads, K key size

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from attention.kernels.problem import has_no_data

KEPT = 4  # tables that a rotation keeps; those of queries and keys may differ, and so may those of an evaluation


class Rotary:
    """Rotates features i and i + half together by the angle position * base ** (-i / half), for i < half = K // 2.

    With an even K, as in the paper, these are the angles of its equation 34. If K is odd, the last feature stays as it
    is. The features of a pair are half a head apart, while they are neighbours in the paper. This only reorders the
    features, and makes the slices contiguous.
    """

    def __init__(self, base: float) -> None:
        if base <= 0:
            raise ValueError(f"base: is {base}, must be over 0")
        self.base = base
        self._make = partial(_tables, base)
        # every layer needs the same tables in every step
        self._keep = lru_cache(KEPT)(self._make)
        # a CUDA graph reads its tables in every replay, but does not hold them
        self._recorded: set[tuple[Tensor, Tensor]] = set()

    def __reduce__(self) -> tuple[Callable[[float], Rotary], tuple[float]]:
        """Let a copy make tables of its own."""
        return type(self), (self.base,)

    def __call__(self, x: Tensor, first: int = 0) -> Tensor:
        """Rotate index n of x [B, N, H, K] as position `first` + n; angles are in float32 or better."""
        N, H, K = x.shape[1:]
        if H > 1 and x.stride(2) == 0:
            # heads that share their features are rotated once
            return self(x[:, :, :1], first).expand(-1, -1, H, -1)
        # torch.compile makes the tables a part of its code, and what is made in inference mode can't be used outside
        passing = torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or has_no_data(x)
        tables = (self._make if passing else self._keep)(N, H, K, first, x.dtype, x.device)
        if not passing and _is_recorded(x):
            self._recorded.add(tables)
        turned: Tensor = _Turn.apply(x, *tables)
        return turned


def _is_recorded(x: Tensor) -> bool:
    """Whether what happens to `x` now becomes a part of a CUDA graph."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _tables(
    base: float, N: int, H: int, K: int, first: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The cosines of the angles, and the sines with their signs, both [N, H, K]."""
    half = K // 2
    exact = torch.promote_types(dtype, torch.float32)
    turn = base ** (-torch.arange(half, device=device, dtype=exact) / max(1, half))
    angle = torch.arange(first, first + N, device=device, dtype=exact)[:, None, None] * turn
    still = angle.new_zeros(N, 1, K % 2)
    cos = torch.cat([angle.cos(), angle.cos(), still + 1], dim=-1)
    sin = torch.cat([-angle.sin(), angle.sin(), still], dim=-1)
    # expanded to every head, because products of short rows are several times slower in 16 bits
    cos_NHK, sin_NHK = (table.to(dtype).expand(N, H, K).contiguous() for table in (cos, sin))
    return cos_NHK, sin_NHK


class _Turn(torch.autograd.Function):
    """x cos + swapped(x) sin, with the signs in `sin`. The gradient is the inverse rotation, with as few passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return torch.addcmul(x * cos, _swapped(x), sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _Turn.apply(gradients[0], cos, -sin), None, None


def _swapped(x: Tensor) -> Tensor:
    """Swap the halves of the last dimension. If K is odd, the last feature stays."""
    half = x.shape[-1] // 2
    return torch.cat([x[..., half : 2 * half], x[..., :half], x[..., 2 * half :]], dim=-1)
