"""AdamW (Loshchilov and Hutter 2019, 1711.05101)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from experiments.settings.optimizer import AdamW, Muon
from experiments.training.step.optimizers.parameter_groups import parameter_groups
from experiments.training.step.optimizers.without_compiler import without_compiler


def build(model: nn.Module, config: AdamW, precision: str) -> list[Optimizer]:
    """AdamW for all parameters."""
    return [adamw(parameter_groups(model, model.parameters(), config), config)]


def adamw(groups: list[dict[str, Any]], config: AdamW | Muon) -> Optimizer:
    """AdamW for these groups of parameters."""
    return without_compiler(torch.optim.AdamW)(
        groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True
    )
