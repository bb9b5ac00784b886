"""Attention to near positions only, as a mask."""

# B batch, N length, D width

from __future__ import annotations

import torch
from torch import Tensor


def near(window: int, x: Tensor, mask: Tensor | None) -> Tensor | None:
    """A mask that lets each position of x [B, N, D] attend to those of `mask` at most `window` positions away.

    mask: bool, broadcastable to [B, H, N, N]; None: all. A window as long as x returns it as it is.
    """
    if window >= x.shape[1] - 1:
        return mask
    place = torch.arange(x.shape[1], device=x.device)
    within = ((place[:, None] - place).abs() <= window)[None, None]
    return within if mask is None else within & mask
