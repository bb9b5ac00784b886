"""The dtypes of torch.autocast, applied once for the forward and the backward pass of a kernel."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def cast(tensor: Tensor) -> Tensor:
    """Cast the tensor to the dtype of the surrounding autocast, if any; float64 stays, as in torch's own products."""
    device = tensor.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensor
    return tensor if tensor.dtype == torch.float64 else tensor.to(torch.get_autocast_dtype(device))


def disabled(tensor: Tensor) -> contextlib.AbstractContextManager[None]:
    """A block without autocast on the tensor's device, for tensors whose dtypes are chosen already."""
    device = tensor.device.type
    if not torch.amp.is_autocast_available(device):
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False)
