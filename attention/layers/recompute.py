"""Results that a backward pass computes again instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

Function = Callable[..., Tensor]


def recomputed(function: Function, *inputs: Tensor) -> Tensor:
    """function(*inputs), for whose backward pass nothing but the inputs is kept.

    The function has to compute the same each time, so it draws no random numbers. The gradients are those of
    function(*inputs), to the last bit.

    This is torch.utils.checkpoint in fewer words, and without the import of torch's compiler, which takes a second.
    """
    if torch.compiler.is_compiling():
        result: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
        return result
    recomputation = _Recomputation(function, inputs)
    with saved_tensors_hooks(recomputation.number_of, recomputation.tensor):
        return function(*inputs)


class _Recomputation:
    """The tensors that a function keeps for its backward pass, numbered in the order in which it keeps them."""

    def __init__(self, function: Function, inputs: tuple[Tensor, ...]) -> None:
        self._function = function
        # the empty tensor makes autograd record it even if no input needs a gradient; the result is kept, because in
        # torch 2.11 what autograd has recorded goes with it
        self._inputs: Tensor = _Inputs.apply(inputs[0].new_empty(0).requires_grad_(), *inputs)
        self._count = 0
        self._tensors: dict[int, Tensor] = {}  # of the last recomputation, without those that were taken
        self._autocast = _present_autocast(inputs[0].device.type)

    def number_of(self, tensor: Tensor) -> int:
        self._count += 1
        return self._count - 1

    def tensor(self, number: int) -> Tensor:
        if number not in self._tensors:
            self._tensors = self._kept()
        return self._tensors.pop(number)

    def _kept(self) -> dict[int, Tensor]:
        """Call the function again, until it has kept its last tensor."""
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> None:
            kept[len(kept)] = tensor.detach()
            if len(kept) == self._count:
                raise _Complete

        with suppress(_Complete), saved_tensors_hooks(keep, _no_tensor), torch.enable_grad(), self._autocast:
            self._function(*cast(Any, self._inputs.grad_fn).saved_tensors[1:])
        return kept


def _present_autocast(device: str) -> AbstractContextManager[object]:
    """Blocks with the autocast of now, which a backward pass does not have. A device without data has none."""
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(
        device,
        dtype=torch.get_autocast_dtype(device),
        enabled=torch.is_autocast_enabled(device),
        cache_enabled=torch.is_autocast_cache_enabled(),
    )


class _Inputs(torch.autograd.Function):
    """Keeps tensors in the way of autograd, so that a change of one in place is noticed, and hooks see them."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return tensors[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise AssertionError("nothing goes backward through what only keeps tensors")


class _Complete(Exception):
    """The function has kept its last tensor, and what it computes after that is not needed."""


def _no_tensor(_: None) -> Tensor:
    raise AssertionError("nothing goes backward through a recomputation")
