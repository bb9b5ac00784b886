"""The processes that take a step together: one, unless a run has several devices.

Each process computes some parts of a batch, and results are summed. The first process leads. Only it has the run's
folder, its clock, signals and display. It decides, and tells the others what to do, so the processes have to agree only
on whether memory has run out. In a single process, which is a `World` of one, all of this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from experiments.objectives.objective import Batch

T = TypeVar("T")


class World:
    """The processes of a run, of which this one is number `rank` of `size`. In this class it is the only one."""

    rank = 0
    local_rank = 0  # rank among the processes of this machine
    size = 1
    sharded = False  # whether weights, gradients and moments are divided among the processes

    def place(self, model: nn.Module, device: torch.device) -> None:
        """Move the model to the device of this process, as far as it belongs there."""
        model.to(device)

    def share(self, parts: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
        """The parts that this process takes, each with its index among all parts."""
        return ((index, part) for index, part in enumerate(parts) if index % self.size == self.rank)

    @contextmanager
    def together(self, task: str, *arguments: Any) -> Iterator[None]:
        """A block that all processes execute: the first process tells the others the task's name and arguments."""
        yield

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over all processes, in place."""

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum the gradients over all processes. A parameter keeps no gradient if no process has one."""

    @contextmanager
    def passes(self) -> Iterator[None]:
        """A block with forward and backward passes."""
        yield

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The l2 norm of all gradients together, a scalar."""
        return get_total_norm(gradients)

    def finite(self, tensor: Tensor) -> bool:
        """Whether every number of a weight or gradient is finite."""
        return bool(tensor.isfinite().all())

    def update(self, optimizers: Sequence[Optimizer]) -> None:
        """Update the parameters of every optimizer from their gradients."""
        for optimizer in optimizers:
            optimizer.step()

    def whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors as they are on one device, in the first process."""
        return tensors

    def restore(self, live: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> None:
        """Copy whole tensors, which only the first process has, into its live ones of the same names."""
        for name, tensor in whole.items():
            live[name].copy_(tensor)

    def make_whole(self, model: nn.Module) -> None:
        """Give this process all weights of a model that will not be trained further."""

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Copy the values of the tensors from the first process to all others, in place."""

    def gather(self, value: T) -> list[T]:
        """The value of every process, in order of their ranks."""
        return [value]

    def when_signalled(self, note: Callable[[int], None]) -> None:
        """In the first process, let `note` be called with the number of any signal that another process receives."""


ALONE = World()
