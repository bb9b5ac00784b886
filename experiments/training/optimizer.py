"""AdamW with decoupled weight decay (Loshchilov and Hutter 2019, 1711.05101)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.settings import AdamW


def adamw(model: nn.Module, settings: AdamW) -> torch.optim.AdamW:
    """AdamW over two groups of parameters, with its moments already allocated.

    Matrices decay, vectors (biases, norms' gains) don't. Embeddings and head projections are matrices and decay: the
    projections multiply the logits or the weights as any linear map does, and without decay their scale, which the
    softmax turns into sharpness, would be the one scale of the layer that nothing holds back.

    The moments exist before the first step, so that a step never runs out of memory half way through its update.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors, named after the parameter they belong to: `exp_avg/layers.0.norm.weight`."""
    return {
        f"{key}/{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
