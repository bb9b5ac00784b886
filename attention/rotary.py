"""Rotary position encoding (Su et al. 2021, 2104.09864): dot products that depend on the distance of positions."""

# B batch, N positions, H heads, K key size

from __future__ import annotations

import torch
from torch import Tensor


class Rotary:
    """Rotates features i and i + K/2 together by the angle position * base ** (-2 i / K), for i < K/2 (equation 34).

    Pairs are half a head apart instead of neighbours: the paper's features in another order, and contiguous slices.
    The last feature of an odd K stays as it is.
    """

    def __init__(self, base: float) -> None:
        if base <= 0:
            raise ValueError(f"base: is {base}, must be over 0")
        self.base = base

    def __call__(self, x: Tensor) -> Tensor:
        """[B, N, H, K] -> the same, position n of dimension 1 turned n times; angles in float32 or better."""
        N, half = x.shape[1], x.shape[3] // 2
        dtype = torch.promote_types(x.dtype, torch.float32)
        turn = self.base ** (-torch.arange(half, device=x.device, dtype=dtype) / max(1, half))
        angle = torch.arange(N, device=x.device, dtype=dtype)[:, None, None] * turn
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], dim=-1)
