"""Rotary position encoding (Su et al. 2021, 2104.09864): dot products depend on the distance between positions."""

# B batch, N positions, H heads, K key size

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Rotary:
    """Rotates features i and i + K/2 together by the angle position * base ** (-2 i / K), for i < K/2 (equation 34).

    The features of a pair are half a head apart, while they are neighbours in the paper. This only reorders the
    features, and makes the slices contiguous. If K is odd, the last feature stays as it is.
    """

    def __init__(self, base: float) -> None:
        if base <= 0:
            raise ValueError(f"base: is {base}, must be over 0")
        self.base = base

    def __call__(self, x: Tensor, first: int = 0) -> Tensor:
        """Rotate index n of x [B, N, H, K] as position `first` + n; angles are in float32 or better."""
        N, H, K = x.shape[1:]
        half = K // 2
        dtype = torch.promote_types(x.dtype, torch.float32)
        turn = self.base ** (-torch.arange(half, device=x.device, dtype=dtype) / max(1, half))
        angle = torch.arange(first, first + N, device=x.device, dtype=dtype)[:, None, None] * turn
        still = angle.new_zeros(N, 1, K % 2)
        cos = torch.cat([angle.cos(), angle.cos(), still + 1], dim=-1)
        sin = torch.cat([-angle.sin(), angle.sin(), still], dim=-1)
        # expanded to every head, because products of short rows are several times slower in 16 bits
        cos_NHK, sin_NHK = (table.to(x.dtype).expand(N, H, K).contiguous() for table in (cos, sin))
        turned: Tensor = _Turn.apply(x, cos_NHK, sin_NHK)
        return turned


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
