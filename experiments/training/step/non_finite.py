"""The report on a step whose loss or gradient is not finite: its batch, and the place of the first wrong value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from experiments.files.digest import bytes_digest
from experiments.training.step.compiling import eager
from experiments.training.step.world import ALONE, World


class NonFiniteError(ArithmeticError):
    """A step that was stopped before it changed a weight. The message has everything that is known about it."""

    def __init__(self, step: int, reason: str) -> None:
        self.step = step
        super().__init__(reason)


def describe(step: int, tokens_BN: Tensor, loss: float, norm: float, where: str) -> str:
    """One line with the step, a digest of the batch's tokens, the loss and gradient norm, and where it went wrong."""
    digest = bytes_digest([tokens_BN.numpy().tobytes()])[:8]
    return f"step {step} (batch {digest} of {len(tokens_BN)} sequences): loss {loss:g}, gradient norm {norm:g}; {where}"


def locate(model: nn.Module, forward: Callable[[], object], world: World = ALONE) -> str:
    """Describe where values first stop being finite.

    `forward` repeats the failed step's forward pass through `model`; the step's gradients must still exist. The text
    names the first module that returns a value that is not finite, or else the first parameter whose gradient is not
    finite. It also names a parameter that is not finite itself.
    """
    weights = [name for name, parameter in model.named_parameters() if not world.finite(parameter)]
    stored = f"; {weights[0]} is not finite itself" if weights else ""
    if first := first_module(model, forward):
        name, began_before = first
        fed = ", whose input already was not" if began_before else ""
        return f"the first module to return something not finite is {name}{fed}{stored}"
    gradients = ((name, each.grad) for name, each in model.named_parameters() if each.grad is not None)
    if wrong := [name for name, gradient in gradients if not world.finite(gradient)]:
        return f"every module's output is finite; the first parameter whose gradient is not is {wrong[0]}{stored}"
    return "every module's output and every gradient is finite; their norm overflows"


def first_module(model: nn.Module, forward: Callable[[], object]) -> tuple[str, bool] | None:
    """The first module that returns a value that is not finite, and whether its input was not finite either."""
    first: list[tuple[str, bool]] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if not first and not _finite(output):
                first.append((name or type(module).__name__, not _finite(inputs)))

        return look

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        # uncompiled, because a compiled layer does not run the hooks of its parts
        with eager(model), torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return first[0] if first else None


def _finite(value: Any) -> bool:
    """Whether every number in tensors, or tuples and lists of tensors, is finite; anything else counts as finite."""
    if isinstance(value, tuple | list):
        return all(_finite(each) for each in value)
    return not (isinstance(value, Tensor) and value.is_floating_point()) or bool(value.isfinite().all())
