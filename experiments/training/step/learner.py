"""One step of training: batch, gradient in micro-batches that fit, guard, clipping, update.

A run consists of such steps, with a folder and checkpoints. Experiments on the heads take a few steps without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Optimizer

from experiments.data import batches
from experiments.data.packing import Packed
from experiments.measure.memory import give_back_freed_memory
from experiments.model.layers.batch_norm import BatchNorm, batch_norms, commit, discard
from experiments.model.transformer import Transformer
from experiments.objectives.loss import LossSums
from experiments.objectives.objective import Batch, Objective
from experiments.settings.devices import largest_part
from experiments.settings.run import Settings
from experiments.training.step.cuda_graphs import CudaGraphs, graphs_of
from experiments.training.step.micro_batches import Forward, backward, fitting, shortage_shared
from experiments.training.step.non_finite import NonFiniteError, describe, locate
from experiments.training.step.optimizers.build_optimizers import build_optimizers, set_learning_rate
from experiments.training.step.world import ALONE, World


class Regularizer(Protocol):
    """A term of the loss besides the objective's, and its effect on the forward passes."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """Its parameters, which an optimizer of the learner must hold."""

    def forward_passes(self, index: int) -> AbstractContextManager[object]:
        """The block in which the forward passes of a step run; its random numbers are a function of `index`."""

    def term(self) -> Tensor:
        """The term in nats, which is added to the mean loss once in each step."""


class StepOutcome(NamedTuple):
    """The outcome of a step."""

    batch: Batch
    sums: LossSums  # on the CPU
    gradient_norm: float  # before clipping


@dataclass
class Learner:
    """A model, what it learns from, and the optimizers that change it, one step at a time.

    The number of a step counts from 1, as in the log. Its index counts from 0. Its batch, masks and dropout are pure
    functions of the seed and the index.
    """

    model: Transformer
    forward: Forward
    objective: Objective
    sequences: Packed
    optimizers: list[Optimizer]
    batch_size: int
    micro_batch: int  # sequences at once; halved whenever memory runs out
    clip: float | None  # largest norm of the gradient
    graphs: CudaGraphs | None = None
    regularizer: Regularizer | None = None
    say: Callable[[str], None] = lambda message: None
    # the most sequences at once in an evaluation; halved whenever its memory runs out
    evaluation_batch: int = field(init=False)

    def __post_init__(self) -> None:
        self.evaluation_batch = self.micro_batch

    def take(self, step: int, learning_rate: float) -> StepOutcome:
        """Take the step of this number. Raises NonFiniteError before a weight has changed, OutOfMemoryError.

        A step with no token to predict changes nothing, and its outcome has no labels.
        """
        index = step - 1
        batch = self.batch(index)
        if not len(batch.targets):
            batch = batch._replace(labels=None)
            return StepOutcome(batch, LossSums(*torch.zeros(len(LossSums._fields), dtype=torch.float64)), 0.0)
        sums, total_norm = self.gradient(batch, index), self.gradient_norm()
        # one copy, because each waits for the device
        numbers = torch.stack([*sums, total_norm.to(sums.tokens)]).cpu()
        sums, norm = LossSums(*numbers[:-1]), float(numbers[-1])
        mean = float(sums.mean(batch))
        if not math.isfinite(mean + norm):
            where = locate(self.model, lambda: self._repeat_forward(batch, index), self.forward.world)
            raise NonFiniteError(step, describe(step, batch.tokens, mean, norm, where))
        if self.clip is not None:
            clip_grads_with_norm_(self.parameters(), self.clip, total_norm)
        set_learning_rate(self.optimizers, learning_rate)
        self.forward.world.update(self.optimizers)
        commit(self._norms)
        return StepOutcome(batch, sums, norm)

    def batch(self, index: int) -> Batch:
        """The batch of a step and what it has to predict: a pure function of (seed, index)."""
        seed = self.forward.seed
        tokens_BN = batches.batch(self.sequences, seed, index, self.batch_size)
        return self.objective.batch(tokens_BN, seed, index)

    def gradient(self, batch: Batch, index: int) -> LossSums:
        """Compute the gradient of the batch's mean loss into the parameters. Returns its summed losses, on the device.

        Raises OutOfMemoryError if not even one sequence at a time fits.
        """
        world = self.forward.world

        def attempt(micro_batch: int) -> LossSums:
            self.forget_gradient()
            with shortage_shared(world):
                with self._forward_passes(index):
                    sums = self._backward(batch, index, micro_batch)
                if self.regularizer is not None:
                    self.regularizer.term().backward()
            return sums

        def again(micro_batch: int) -> None:
            # they hold the memory of a whole batch's passes, and are of no use for parts
            self.graphs = None
            self.make_room(f"out of memory at step {index + 1}: going on with {micro_batch} sequences at once")

        sums, self.micro_batch = fitting(attempt, self.micro_batch, again)
        world.sum_gradients(self.parameters())
        world.sum(sums)
        return sums

    def gradient_norm(self) -> Tensor:
        """The l2 norm of the present gradient, a scalar."""
        return self.forward.world.norm([each.grad for each in self.parameters() if each.grad is not None])

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the model, then those of the regularizer."""
        return [*self._of_model, *(() if self.regularizer is None else self.regularizer.parameters())]

    def forget_gradient(self) -> None:
        """Release the gradient, and statistics that a forward pass has proposed."""
        for parameter in self.parameters():
            parameter.grad = None
        discard(self._norms)

    def make_room(self, why: str) -> None:
        """Release everything that is not needed after memory ran out, and report `why`."""
        self.forget_gradient()
        give_back_freed_memory()
        self.say(why)

    @cached_property
    def _of_model(self) -> list[nn.Parameter]:
        return [*self.model.parameters()]

    @cached_property
    def _norms(self) -> list[BatchNorm]:
        return [*batch_norms(self.model)]

    def _backward(self, batch: Batch, index: int, micro_batch: int) -> LossSums:
        # a regularizer has random numbers of its own in the forward passes
        if self.graphs is None or self.regularizer is not None:
            return backward(self.forward, batch, index, micro_batch)
        return self.graphs.backward(self.forward, batch, index, micro_batch, self.say)

    def _forward_passes(self, index: int) -> AbstractContextManager[object]:
        return nullcontext() if self.regularizer is None else self.regularizer.forward_passes(index)

    def _repeat_forward(self, batch: Batch, index: int) -> None:
        # all parts, whichever process they were in
        forward = replace(self.forward, world=ALONE)
        with self._forward_passes(index):
            for _ in forward.losses(batch, index, self.micro_batch):
                pass


def learner_of(
    settings: Settings,
    model: Transformer,
    objective: Objective,
    sequences: Packed,
    *,
    device: torch.device,
    precision: str,
    world: World = ALONE,
) -> Learner:
    """The learner that the settings describe, for a model on `device`. precision: fp32 or bf16.

    world: the processes that take its steps together; each has its own learner. It has placed the model.

    Raises Mistake if a library of the optimizer is missing.
    """
    trainer = settings.trainer
    micro_batch = min(trainer.micro_batch or trainer.batch_size, largest_part(trainer.batch_size, world.size))
    # then there is one process
    whole = micro_batch == trainer.batch_size
    return Learner(
        model=model,
        forward=Forward(model, device, precision, settings.seed, trainer.label_smoothing, world),
        objective=objective,
        sequences=sequences,
        optimizers=build_optimizers(model, settings.optimizer, precision, world),
        batch_size=trainer.batch_size,
        micro_batch=micro_batch,
        clip=settings.optimizer.clip,
        graphs=graphs_of(model, objective, device, trainer.batch_size, settings.length) if whole else None,
    )
