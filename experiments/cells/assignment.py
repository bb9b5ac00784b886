"""The message that the process of a cell gets from its parent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from experiments.search.study import MedianPruner


@dataclass(frozen=True)
class Assignment:
    """The run to train, and the conditions of its process."""

    folder: Path  # of the run
    cores: tuple[int, ...] | None = None  # cores to keep to; None: any
    gpus: str | None = None  # GPUs to see, as in CUDA_VISIBLE_DEVICES; None: those that its parent sees
    cells_at_once: int = 1  # number of cells trained side by side
    pruner: MedianPruner | None = None  # of the search, if the run is a trial

    def to_line(self) -> str:
        """One line of JSON."""
        return _JSON.dump_json(self).decode()

    @classmethod
    def from_line(cls, line: str | bytes) -> Assignment:
        """The assignment that `to_line` wrote."""
        return _JSON.validate_json(line)


_JSON = TypeAdapter(Assignment)


def pin_to_cores(cores: tuple[int, ...] | None) -> None:
    """Run this process, and every thread that it will start, on these cores only."""
    if cores is not None:
        os.sched_setaffinity(0, cores)
