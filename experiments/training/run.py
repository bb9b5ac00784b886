"""A run in memory: its parts, and what it has used so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from experiments.data.packing import Dataset
from experiments.display.progress import Display
from experiments.measure.cores import Neighbours
from experiments.measure.memory import PeakMemory
from experiments.measure.throughput import Throughput
from experiments.model.transformer import Transformer
from experiments.objectives.objective import Objective
from experiments.record.folder import RunFolder
from experiments.record.mirrors.mirrors import Mirrors
from experiments.settings.run import Settings
from experiments.training.checkpoint_header import Progress
from experiments.training.step.learner import Learner
from experiments.training.step.micro_batches import Forward
from experiments.training.step.world import World
from experiments.training.usage import ProcessUsage, Usage

# takes a step and its validation loss (nats), and returns why a search considers the run hopeless, or None
Pruner = Callable[[int, float], str | None]


class TrialPruned(Exception):
    """A search does not need the rest of the run; the message has the reason."""


@dataclass
class Run:
    """A run in memory: the learner that takes its steps, and everything around it."""

    settings: Settings
    folder: RunFolder
    mirrors: Mirrors
    display: Display
    dataset: Dataset
    learner: Learner
    planned: int | None  # number of steps; None: the run ends by the clock
    progress: Progress
    memory: PeakMemory
    neighbours: Neighbours
    say: Callable[[str], None]  # writes a message to the log and shows it
    backend: str = ""  # the attention kernels that run
    throughput: Throughput = field(default_factory=Throughput)
    earlier: Usage = field(default_factory=Usage)  # of earlier starts of this run, and of a trial of torch.compile
    pruner: Pruner | None = None

    @property
    def model(self) -> Transformer:
        """The model that is trained."""
        return self.learner.model

    @property
    def forward(self) -> Forward:
        """The forward pass of the model, on its device and in its precision."""
        return self.learner.forward

    @property
    def world(self) -> World:
        """This process and the others that take the steps with it."""
        return self.forward.world

    @property
    def objective(self) -> Objective:
        """The objective that the model learns."""
        return self.learner.objective

    @property
    def wall_seconds(self) -> float:
        """Seconds since the first step, over all starts, including those of a trial of torch.compile."""
        return self.earlier.wall_seconds + self.throughput.elapsed()

    def usage(self) -> Usage:
        """The resources used over all starts and in all processes."""
        processes = self.usage_by_process()
        return self.earlier.followed_by(
            Usage(
                wall_seconds=self.throughput.elapsed(),
                processor_seconds=sum(each.processor_seconds for each in processes),
                peak_memory_bytes=max(each.peak_bytes for each in processes),
                cells_at_once=self.neighbours.cells_at_once,
                waited_for_cores=self.neighbours.waited_share(),
            )
        )

    def usage_by_process(self) -> list[ProcessUsage]:
        """The resources that each process has used since its start."""
        with self.world.together("tell_usage"):
            return self.world.gather(ProcessUsage.of(self.memory, self.throughput))

    def limit_reached(self) -> bool:
        """Whether the planned steps are taken, or the time is up."""
        minutes = self.settings.trainer.max_minutes
        return self.progress.step == self.planned or (minutes is not None and self.wall_seconds >= 60 * minutes)

    def due(self, every: int) -> bool:
        """Whether something done every `every` steps is due now; at the end of the run it always is."""
        return self.progress.step % every == 0 or self.progress.ended
