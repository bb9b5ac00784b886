"""What a run uses of its machine: time, memory, and the cores that it shares with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from experiments.measure.memory import PeakMemory
from experiments.measure.throughput import Throughput


class ProcessUsage(NamedTuple):
    """The resources that one process of a run has used since its start."""

    peak_bytes: int
    processor_seconds: float

    @classmethod
    def of(cls, memory: PeakMemory, throughput: Throughput) -> ProcessUsage:
        """The resources that these two have counted."""
        return cls(memory.peak_bytes(), throughput.processor_seconds())


@dataclass(frozen=True)
class Usage:
    """The resources that a run has used in one or more starts. A checkpoint and a result hold them."""

    wall_seconds: float = 0.0  # from the first step on, and those of a trial of torch.compile
    processor_seconds: float = 0.0  # likewise, of all threads of all processes
    peak_memory_bytes: int = 0  # on the device that needed most
    cells_at_once: int = 1  # the most cells that were trained side by side in a start whose speeds count
    waited_for_cores: float | None = None  # the largest share of the time of such a start; None: unknown

    def followed_by(self, later: Usage) -> Usage:
        """The resources of these starts and later ones together."""
        waited = (share for share in (self.waited_for_cores, later.waited_for_cores) if share is not None)
        return Usage(
            wall_seconds=self.wall_seconds + later.wall_seconds,
            processor_seconds=self.processor_seconds + later.processor_seconds,
            peak_memory_bytes=max(self.peak_memory_bytes, later.peak_memory_bytes),
            cells_at_once=max(self.cells_at_once, later.cells_at_once),
            waited_for_cores=max(waited, default=None),
        )
