"""Adafactor (Shazeer and Stern 2018, 1804.04235): the learning rate is relative to each parameter's own scale."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from experiments.settings.optimizer import Adafactor
from experiments.training.step.optimizers.parameter_groups import parameter_groups
from experiments.training.step.optimizers.without_compiler import without_compiler


def build(model: nn.Module, config: Adafactor, precision: str) -> list[Optimizer]:
    """Adafactor for all parameters."""
    return [
        without_compiler(torch.optim.Adafactor)(
            parameter_groups(model, model.parameters(), config),
            lr=config.learning_rate,
            beta2_decay=config.beta2_decay,
            eps=(None, config.least_scale),
            d=config.update_clip,
        )
    ]
