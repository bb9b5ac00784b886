"""Muon (Jordan et al. 2024): each update of a matrix is its momentum, made nearly orthogonal.

torch.optim.Muon always multiplies in bfloat16, for which a CPU without instructions for it needs about fifty times as
long as for float32. Here the products have the precision of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from experiments.model.transformer import part
from experiments.settings.optimizer import Muon as MuonSettings
from experiments.training.step.optimizers.kinds.adamw import adamw
from experiments.training.step.optimizers.parameter_groups import parameter_groups
from experiments.training.step.optimizers.without_compiler import without_compiler

# of the polynomial a s + b s^3 + c s^5, which moves singular values towards 1: the steepest at 0 (Jordan et al. 2024)
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
LEAST_NORM = 1e-7  # of a matrix, before it is divided by its norm


def build(model: nn.Module, config: MuonSettings, precision: str) -> list[Optimizer]:
    """Muon for the hidden matrices, and AdamW for embeddings, head, vectors, P_l and P_w.

    The updates of both have the same size, so both can use one learning rate.
    """
    linear = {module.weight for module in model.modules() if isinstance(module, nn.Linear)}
    named = list(model.named_parameters())
    hidden = [parameter for name, parameter in named if parameter in linear and part(name) != "output"]
    rest = [parameter for name, parameter in named if parameter not in linear or part(name) == "output"]
    matrices = Muon(
        parameter_groups(model, hidden, config),
        lr=config.learning_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        newton_schulz_steps=config.newton_schulz_steps,
        products=torch.bfloat16 if precision == "bf16" else None,
    )
    return [matrices, adamw(parameter_groups(model, rest, config), config)]


@without_compiler
class Muon(Optimizer):
    """Muon with Nesterov's momentum, decoupled weight decay, and updates of the size of AdamW's.

    At a rate of 1, the update of a matrix [A, B] has singular values near 0.2 sqrt(max(A, B)). The root mean square of
    its entries is therefore about 0.2, as it is with AdamW, and both can use one learning rate (Liu et al. 2025,
    2502.16982).

    parameters: matrices, or groups of them. momentum: share of the old momentum in the new one. newton_schulz_steps:
    iterations for each update. products: the type in which they multiply; None: the type of the gradient.
    """

    def __init__(
        self, parameters: Iterable[Any], lr: float, weight_decay: float = 0.0, *, momentum: float, nesterov: bool,
        newton_schulz_steps: int, products: torch.dtype | None = None,
    ):  # fmt: skip
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.momentum, self.nesterov = momentum, nesterov
        self.newton_schulz_steps, self.products = newton_schulz_steps, products

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameters in at_once(group["params"]):
                self._update(parameters, group["lr"], group["weight_decay"])
        return loss

    def _update(self, parameters: list[Tensor], rate: float, weight_decay: float) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(gradient)
        momenta = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
        if rate == 0:
            # nothing moves, and the products would take as long as in any step
            return
        directions = torch._foreach_lerp(gradients, momenta, self.momentum) if self.nesterov else momenta
        # a single matrix is no stack, because products of stacks may round differently
        x = torch.stack(directions) if len(directions) > 1 else directions[0]
        updates = orthogonalized(x.to(self.products or x.dtype), self.newton_schulz_steps).to(x.dtype)
        shape = parameters[0].shape
        torch._foreach_mul_(parameters, 1 - rate * weight_decay)
        torch._foreach_add_(parameters, [*updates.view(-1, *shape)], alpha=-rate * 0.2 * math.sqrt(max(shape)))


def at_once(parameters: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """The parameters with gradients, in groups that are updated together.

    On a GPU, which has multiplied small matrices before it can be told to multiply others, all matrices of one shape
    are a group. On a CPU, which multiplies stacks more slowly, each matrix is one.
    """
    groups: dict[object, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            groups.setdefault(parameter.shape if parameter.is_cuda else parameter, []).append(parameter)
    return groups.values()


def orthogonalized(matrix: Tensor, steps: int) -> Tensor:
    """A matrix with the singular vectors of `matrix` [A, B], and singular values between about 0.7 and 1.2.

    It takes 4 min(A, B)^2 (max(A, B) + min(A, B) / 2) FLOPs a step (Newton-Schulz). Singular values far below the
    largest one need more steps. With a stack of matrices, [S, A, B], the same happens to each.
    """
    a, b, c = COEFFICIENTS
    add_product = torch.addmm if matrix.dim() == 2 else torch.baddbmm
    tall = matrix.size(-2) > matrix.size(-1)
    x = matrix.mT if tall else matrix
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=LEAST_NORM)
    for _ in range(steps):
        gram = x @ x.mT
        x = add_product(x, add_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
