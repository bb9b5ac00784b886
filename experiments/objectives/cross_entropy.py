"""Cross entropy of many positions, computed for a few at a time.

For all positions at once in float32, the logits, their log-softmax and the gradients of both would be the largest
tensors of a step.
"""

# P positions, V vocabulary

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

IGNORED_TARGET = -100  # a target without a loss, as in torch's cross entropy
LOGITS_AT_ONCE = {"cpu": 2**20, "cuda": 2**24}  # on a CPU, as many as fit into its cache


class CrossEntropy(torch.autograd.Function):
    """Losses [P] in nats by F.cross_entropy, in float32 or better. The gradient is in the logits' dtype."""

    @staticmethod
    def forward(ctx: Any, logits_PV: Tensor, targets_P: Tensor, label_smoothing: float) -> Tensor:
        """logits [P, V], targets [P] -> losses [P] in nats."""
        ctx.save_for_backward(logits_PV, targets_P)
        ctx.label_smoothing = label_smoothing
        losses = [
            F.cross_entropy(at_least_float32(logits), targets, reduction="none", label_smoothing=label_smoothing)
            for logits, targets in _chunks(logits_PV, targets_P)
        ]
        return torch.cat(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_P: Tensor) -> tuple[Tensor, None, None]:
        """The gradient with respect to the logits: softmax(logits) - (1 - smoothing) [v = target] - smoothing / V."""
        logits_PV, targets_P = ctx.saved_tensors
        smoothing, result_PV = ctx.label_smoothing, torch.empty_like(logits_PV)
        gradient_P = gradient_P.masked_fill(targets_P == IGNORED_TARGET, 0.0)
        for logits, targets, gradient, result in _chunks(logits_PV, targets_P.clamp(min=0), gradient_P, result_PV):
            error = at_least_float32(logits).softmax(-1)
            if smoothing:
                error -= smoothing / logits.size(1)
            error[torch.arange(len(targets), device=targets.device), targets] -= 1 - smoothing
            result.copy_(error.mul_(gradient[:, None]))
        return result_PV, None, None


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in its own dtype if that is wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _chunks(logits_PV: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    at_once = LOGITS_AT_ONCE.get(logits_PV.device.type, LOGITS_AT_ONCE["cuda"])
    positions = max(1, at_once // logits_PV.size(1))
    return zip(*(tensor.split(positions) for tensor in (logits_PV, *others)), strict=True)
