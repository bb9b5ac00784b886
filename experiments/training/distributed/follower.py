"""The processes of a run other than the first. They do the tasks that the first process gives them."""

from __future__ import annotations

import platform
from contextlib import suppress

from experiments.failures.failure import Mistake
from experiments.measure.memory import PeakMemory
from experiments.measure.throughput import Throughput
from experiments.processes.interruption import handled
from experiments.settings.group import WhichCheckpoint
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.checkpoints import tensors
from experiments.training.distributed.group import DistributedWorld
from experiments.training.set_up import build_learner, identities, kernels, prepare_process
from experiments.training.step.compiling import compile_layers
from experiments.training.step.micro_batches import OutOfMemoryError
from experiments.training.step.non_finite import NonFiniteError
from experiments.training.train import validate
from experiments.training.usage import ProcessUsage


def follow(settings: Settings, group: DistributedWorld) -> None:
    """Do the tasks of the first process until it dismisses this one. Raises Mistake, LostProcessError.

    A signal that interrupts is passed on to the first process, which decides.
    """
    follower = Follower(settings, group)
    with handled(lambda number, frame: group.signalled(number)):
        for name, *arguments in group.tasks():
            # the first process has the same exception, and handles it
            with suppress(NonFiniteError, OutOfMemoryError):
                getattr(follower, name)(*arguments)


class Follower:
    """The tasks, one method each. They make the same calls as the first process, in the same order."""

    def __init__(self, settings: Settings, group: DistributedWorld) -> None:
        self.settings, self.group = settings, group
        self.compiled = False

    def set_up(self, identities_of_first: dict[str, str], precision: str) -> None:
        """Make the learner. Raises Mistake if the settings, the text or the code differ on this machine."""
        device = prepare_process(self.settings, self.group)
        task = task_of(self.settings)
        self.dataset = task.prepare(lambda name, done, total: None)
        for name, ours in identities(self.settings, self.dataset).items():
            if ours != identities_of_first[name]:
                raise Mistake(
                    f"{name} of process {self.group.rank} on {platform.node()} differs from that of the first process"
                )
        self.learner = build_learner(self.settings, task, self.dataset, device, precision, self.group)
        self.memory, self.throughput = PeakMemory(device), Throughput()

    def find_kernels(self) -> None:
        """Find the attention kernels of this process."""
        self.kernels = kernels(self.learner, self.settings)

    def restore(self) -> None:
        """Take over this process's part of a checkpoint."""
        self.group.restore(tensors(self.learner), {})

    def align(self, micro_batch: int, evaluation_batch: int, backend: str, compiled: bool) -> None:
        """Continue from the state of the first process. Raises Mistake if another kernel would run here."""
        learner = self.learner
        learner.micro_batch, learner.evaluation_batch = micro_batch, evaluation_batch
        if self.kernels != backend:
            raise Mistake(
                f"process {self.group.rank} on {platform.node()} has the attention kernel {self.kernels}, "
                f"the first process {backend}"
            )
        if compiled and not self.compiled:
            compile_layers(learner.model, lengths_vary=learner.objective.lengths_vary)
            self.compiled = True
        self.group.spread([*tensors(learner).values()])
        self.memory.reset()
        self.throughput.start()

    def take(self, step: int, learning_rate: float) -> None:
        """Take a step."""
        self.learner.take(step, learning_rate)

    def validate(self, step: int) -> None:
        """Evaluate the weights."""
        validate(self.learner, self.dataset, self.settings.trainer.evaluation_sequences, step)

    def gather(self, which: WhichCheckpoint) -> None:
        """Give this process's part of a checkpoint to the first process."""
        self.group.whole(tensors(self.learner, which))

    def make_whole(self) -> None:
        """Give the weights of this process to the first process, which computes with them alone."""
        self.group.make_whole(self.learner.model)

    def tell_usage(self) -> None:
        """Report the resources that this process has used."""
        self.group.gather(ProcessUsage.of(self.memory, self.throughput))
