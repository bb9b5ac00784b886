"""The optimizers of a run: how they are built, their learning rate, and which of their tensors a checkpoint holds."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from experiments.settings.optimizer import Optimizer as OptimizerSettings
from experiments.training.step.world import ALONE, World

KINDS = "experiments.training.step.optimizers.kinds"
# what LAMB reports about its last step; the next step does not need it
REPORTED = frozenset({"weight_norm", "adam_norm", "trust_ratio"})


def build_optimizers(
    model: nn.Module, config: OptimizerSettings, precision: str = "fp32", world: World = ALONE
) -> list[Optimizer]:
    """Build the optimizers, at the peak learning rate. Each parameter of the model belongs to one of them.

    precision: fp32 or bf16, that of the products of a step; those of Muon's updates have it too.

    Their state exists before the first step, so that a step never runs out of memory in the middle of its update.
    Raises Mistake if a library is missing.
    """
    optimizers: list[Optimizer] = import_module(f"{KINDS}.{config.kind}").build(model, config, precision)
    initialize_state(optimizers, world)
    set_learning_rate(optimizers, config.learning_rate)
    return optimizers


def set_learning_rate(optimizers: Sequence[Optimizer], learning_rate: float) -> None:
    """Set the rate of the next step. Parameters that mix heads, and those of positions, have their own factors."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["rate_factor"]


def optimizer_state(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The optimizers' live tensors, named after their parameters, such as `exp_avg/layers.0.norm.weight`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    tensors = {
        f"{key}/{names[parameter]}": value
        for optimizer in optimizers
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if key not in REPORTED
    }
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    tensors |= {f"step/group{index}": group["step"] for index, group in enumerate(groups) if "step" in group}
    assert all(isinstance(value, Tensor) for value in tensors.values()), "a checkpoint holds tensors only"
    return tensors


def initialize_state(optimizers: Sequence[Optimizer], world: World) -> None:
    """Create the state of the optimizers, with all tensors 0, by a step of rate 0 with gradients of 0."""
    parameters = [
        parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]
    ]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    set_learning_rate(optimizers, 0.0)
    world.update(optimizers)
    for optimizer in optimizers:
        for state in (*optimizer.state.values(), *optimizer.param_groups):
            for key in state.keys() - {"params"}:
                if isinstance(state[key], Tensor):
                    state[key].zero_()
        optimizer.zero_grad()
