"""The optimizers: how each is built, which parameters have weight decay, and which of their tensors a checkpoint holds.

With every optimizer, matrices have weight decay and vectors (biases and gains of norms) don't. Embeddings are matrices
and decay. So do the parameters that mix heads (P_l and P_w), because they multiply the logits or the weights as any
linear map does. Without decay, theirs would be the only scale of the layer that nothing limits, and the softmax turns
the scale of logits into sharpness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attention.layers.attention_layer import AttentionLayer
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import install_line
from experiments.model.layers.position import Learned, RelativeBias
from experiments.model.transformer import part
from experiments.settings.optimizer import Adafactor, AdamW, Lamb, Muon, Stepping
from experiments.training.step import muon
from experiments.training.step.world import ALONE, World

# what LAMB reports about its last step; the next step does not need it
REPORTED = frozenset({"weight_norm", "adam_norm", "trust_ratio"})


def build_optimizers(
    model: nn.Module, config: Stepping, precision: str = "fp32", world: World = ALONE
) -> list[Optimizer]:
    """Build the optimizers, at the peak learning rate. Each parameter of the model belongs to one of them.

    precision: fp32 or bf16, that of the products of a step; those of Muon's updates have it too.

    Their state exists before the first step, so that a step never runs out of memory in the middle of its update.
    Raises Mistake if a library is missing.
    """
    optimizers = BUILDERS[type(config)](model, config, precision)
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


def adamw(model: nn.Module, config: AdamW, precision: str) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter 2019, 1711.05101)."""
    return [_adamw(parameter_groups(model, model.parameters(), config), config)]


def adafactor(model: nn.Module, config: Adafactor, precision: str) -> list[Optimizer]:
    """Adafactor (Shazeer and Stern 2018, 1804.04235): the learning rate is relative to each parameter's own scale."""
    return [
        torch.optim.Adafactor(
            parameter_groups(model, model.parameters(), config),
            lr=config.learning_rate,
            beta2_decay=config.beta2_decay,
            eps=(None, config.least_scale),
            d=config.update_clip,
        )
    ]


def muon_and_adamw(model: nn.Module, config: Muon, precision: str) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) for the hidden matrices, and AdamW for embeddings, head, vectors, P_l and P_w.

    The updates of both have the same size, so both can use one learning rate.
    """
    linear = {module.weight for module in model.modules() if isinstance(module, nn.Linear)}
    named = list(model.named_parameters())
    hidden = [parameter for name, parameter in named if parameter in linear and part(name) != "output"]
    rest = [parameter for name, parameter in named if parameter not in linear or part(name) == "output"]
    matrices = muon.Muon(
        parameter_groups(model, hidden, config),
        lr=config.learning_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        newton_schulz_steps=config.newton_schulz_steps,
        products=torch.bfloat16 if precision == "bf16" else None,
    )
    return [matrices, _adamw(parameter_groups(model, rest, config), config)]


def lamb(model: nn.Module, config: Lamb, precision: str) -> list[Optimizer]:
    """LAMB (You et al. 2020, 1904.00962) without bias correction. Biases and norms have no trust ratio."""
    try:
        from pytorch_optimizer import Lamb
    except ImportError as error:
        raise Mistake(f"optimizer=lamb needs pytorch_optimizer: {error}", install_line("optimizers")) from error
    optimizer = Lamb(
        [group | {"adam": not group["matrices"]} for group in parameter_groups(model, model.parameters(), config)],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        # the decay is part of the update whose length the trust ratio sets, as in the paper
        weight_decouple=False,
        # otherwise the library divides the learning rate by 1 - beta1^t after the trust ratio
        adam_debias=True,
    )
    for group in optimizer.param_groups:
        # a tensor, because a checkpoint is restored in place; the library starts with an integer
        group["step"] = torch.zeros(())
    return [optimizer]


BUILDERS: dict[type, Any] = {
    AdamW: adamw,
    Adafactor: adafactor,
    Muon: muon_and_adamw,
    Lamb: lamb,
}


def parameter_groups(model: nn.Module, parameters: Iterable[nn.Parameter], config: Stepping) -> list[dict[str, Any]]:
    """Groups of matrices or of vectors, each with its factor of the learning rate, in the order of `parameters`."""
    layers = [module for module in model.modules() if isinstance(module, AttentionLayer)]
    mixing = [parameter for layer in layers for parameter in layer.head_mixing_parameters()]
    factors = dict.fromkeys(mixing, config.head_mixing_rate_factor)
    tables = [module for module in model.modules() if isinstance(module, Learned | RelativeBias)]
    factors |= {parameter: config.position_rate_factor for table in tables for parameter in table.parameters()}
    by_kind: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            factor = factors.get(parameter, 1.0)
            by_kind.setdefault((parameter.dim() >= 2, factor), []).append(parameter)
    return [
        {"params": of_kind, "matrices": matrices, "weight_decay": config.weight_decay * matrices, "rate_factor": factor}
        for (matrices, factor), of_kind in by_kind.items()
    ]


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


def _adamw(parameters: list[dict[str, Any]], config: AdamW | Muon) -> Optimizer:
    return torch.optim.AdamW(
        parameters, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True
    )
