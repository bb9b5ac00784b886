"""The precision of the forward and backward pass. The weights, their gradients and the moments stay in float32."""

from __future__ import annotations

import torch


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context of every forward pass, in training and in evaluation: `precision` is fp32 or bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
