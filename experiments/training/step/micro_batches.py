"""One batch, sent through the model in parts that fit into memory.

The gradient is that of the whole batch, whatever the size of the parts.
"""

# B batch, N length, P positions to predict

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure
from experiments.failures.wording import first_line
from experiments.model.layers.dropout_seeds import dropout_seeds, reseed
from experiments.objectives.cross_entropy import IGNORED_TARGET
from experiments.objectives.loss import LossSums, predict
from experiments.objectives.objective import Batch
from experiments.training.step.precision import autocast
from experiments.training.step.world import ALONE, World

T = TypeVar("T")
# parts of the messages of torch's CPU allocator, of others, of C++, and of oneDNN, whose message says nothing more
MEMORY_MESSAGES = ("can't allocate memory", "out of memory", "bad_alloc", "could not create a primitive")


class OutOfMemoryError(Failure):
    """Not even one sequence at a time fits."""

    exit_code = ExitCode.OUT_OF_MEMORY


@dataclass(frozen=True)
class Forward:
    """The forward pass of a run: the model, its device, precision, dropout seed and loss, and the processes."""

    model: nn.Module
    device: torch.device
    precision: str
    seed: int
    label_smoothing: float = 0.0
    world: World = ALONE

    @cached_property
    def dropout_seeds(self) -> dict[str, Tensor]:
        """The seeds of the model's attention dropout."""
        return dropout_seeds(self.model)

    def losses(self, batch: Batch, step: int, micro_batch: int) -> Iterator[LossSums]:
        """The summed losses of each micro-batch that this process takes. Steps count from 0.

        The dropout of a micro-batch is a pure function of (seed, step, index); the index counts the micro-batches of
        all processes.
        """
        for index, part in self.world.share(split(batch, micro_batch)):
            seed = dropout_seed(self.seed, step, index)
            reseed(self.dropout_seeds, seed)
            # dropout in the residual stream is torch's own layer, which draws from the device's generator
            seed_device(seed, self.device)
            yield self.loss(part)

    def loss(self, part: Batch) -> LossSums:
        """The summed losses of one micro-batch."""
        return self.predict(part)[1]

    def predict(self, part: Batch) -> tuple[Tensor, LossSums]:
        """The logits [P, V] of one micro-batch, and its summed losses."""
        logits_PV, sums = self.predict_there(self.on_device(padded(part)))
        return logits_PV[: len(part.targets)], sums

    def on_device(self, part: Batch) -> Batch:
        """The same batch on the model's device."""
        return part.map_tensors(lambda tensor: tensor.to(self.device, non_blocking=True))

    def predict_there(self, part: Batch) -> tuple[Tensor, LossSums]:
        """The logits [P, V] and summed losses of a batch that is on the model's device."""
        with autocast(self.precision, self.device):
            return predict(self.model, part, self.label_smoothing)


def seed_device(seed: int, device: torch.device) -> None:
    """Seed torch's generator of the device, from which dropout is drawn."""
    # torch.manual_seed would record the call stack for every kind of accelerator that is not initialized
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.cuda.manual_seed_all(seed)


def split(batch: Batch, size: int) -> Iterator[Batch]:
    """Parts of at most `size` sequences, each with its own positions; parts without positions to predict are left
    out.
    """
    sequences, length = len(batch.tokens), batch.length
    for start in range(0, sequences, size):
        stop = min(start + size, sequences)
        low, high = torch.searchsorted(batch.positions, torch.tensor([start * length, stop * length])).tolist()
        labels = None if batch.labels is None else batch.labels[start:stop]
        if low < high or labels is not None:
            positions = batch.positions[low:high] - start * length
            inputs = {name: tensor[start:stop] for name, tensor in batch.inputs.items()}
            yield Batch(inputs, positions, batch.targets[low:high], length, labels=labels)


def padded(part: Batch) -> Batch:
    """Pad the positions to predict by up to an eighth with ignored ones, so that few different numbers of them occur.
    There is at least one.

    The number of positions differs a little between batches. oneDNN keeps plans for the last 1024 shapes. At the
    default size each new shape takes 20 MB, and time to make its plans.
    """
    count = len(part.targets)
    missing = -count % (1 << max(count.bit_length() - 4, 0)) if count else 1
    ignored = math.nan if part.targets.is_floating_point() else IGNORED_TARGET
    return part._replace(
        positions=F.pad(part.positions, (0, missing)), targets=F.pad(part.targets, (0, missing), value=ignored)
    )


def backward(forward: Forward, batch: Batch, step: int, micro_batch: int) -> LossSums:
    """Add the gradient of the batch's mean loss to the parameters, and return the summed losses, on the device.

    Both cover only the parts that this process takes. The loss of a part is divided by the number of positions and
    labels of the whole batch, so accumulated gradients equal those of a single pass up to rounding.
    """
    total = torch.zeros(len(LossSums._fields), dtype=torch.float64, device=forward.device)
    for part in forward.losses(batch, step, micro_batch):
        part.mean(batch).backward()
        total += torch.stack([each.detach() for each in part])
    return LossSums(*total)


def fitting(attempt: Callable[[int], T], micro_batch: int, again: Callable[[int], None]) -> tuple[T, int]:
    """Call `attempt(micro_batch)`, and halve the size while memory runs out; return the result and the size that fits.

    `again` is called with each smaller size before it is tried. Raises OutOfMemoryError if not even one sequence fits.
    """
    while True:
        try:
            return attempt(micro_batch), micro_batch
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            shortage = first_line(error)
        # outside of `except`, because the traceback would keep the tensors alive that must be freed
        if micro_batch == 1:
            raise OutOfMemoryError(f"even a single sequence does not fit in memory: {shortage}")
        micro_batch = (micro_batch + 1) // 2
        again(micro_batch)


@contextmanager
def shortage_shared(world: World) -> Iterator[None]:
    """A block that raises MemoryError in every process if memory runs out in one of them."""
    shortage = ""
    try:
        with world.passes():
            yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        shortage = first_line(error)
    if world.any(bool(shortage)):
        raise MemoryError(shortage or "out of memory in another process")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. On a CPU only the message distinguishes such a RuntimeError from others."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MEMORY_MESSAGES)


def dropout_seed(seed: int, step: int, index: int) -> int:
    """A seed of 63 bits for a generator of torch."""
    return int(np.random.SeedSequence((seed, step, index)).generate_state(1, np.uint64)[0] >> np.uint64(1))
