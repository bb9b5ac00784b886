"""LAMB (You et al. 2020, 1904.00962) without bias correction. Biases and norms have no trust ratio."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim import Optimizer

from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import install_line
from experiments.settings.optimizer import Lamb
from experiments.training.step.optimizers.parameter_groups import parameter_groups


def build(model: nn.Module, config: Lamb, precision: str) -> list[Optimizer]:
    """LAMB for all parameters. Raises Mistake if its library is missing."""
    try:
        import pytorch_optimizer
    except ImportError as error:
        raise Mistake(f"optimizer=lamb needs pytorch_optimizer: {error}", install_line("optimizers")) from error
    groups = parameter_groups(model, model.parameters(), config)
    optimizer = pytorch_optimizer.Lamb(
        [group | {"adam": not group["matrices"]} for group in groups],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        # the decay is part of the update whose length the trust ratio sets, as in the paper
        weight_decouple=False,
        # otherwise the library divides the learning rate by 1 - beta1^t after the trust ratio
        adam_debias=True,
    )
    # the library takes norms of more than 10 as 10, which the paper's authors don't do in their code of ALBERT
    # (google-research/albert, lamb_optimizer.py); larger matrices, such as those of wider keys, would train more slowly
    optimizer.clamp = math.inf
    for group in optimizer.param_groups:
        # a tensor, because a checkpoint is restored in place; the library starts with an integer
        group["step"] = torch.zeros(())
    return [optimizer]
