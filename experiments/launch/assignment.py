"""What the process of a cell is told by its parent."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.search.study import Judge


@dataclass(frozen=True)
class Assignment:
    """What to train, and how."""

    folder: Path  # of the run
    cores: tuple[int, ...] | None = None  # to keep to; None: any
    cells_at_once: int = 1  # trained side by side
    judge: Judge | None = None  # of the search that it is a trial of

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_line(cls, line: str | bytes) -> Assignment:
        """What `to_line` wrote."""
        fields = json.loads(line)
        cores, judge = fields["cores"], fields["judge"]
        return cls(
            Path(fields["folder"]),
            None if cores is None else tuple(cores),
            fields["cells_at_once"],
            None if judge is None else Judge(**judge | {"study": Path(judge["study"])}),
        )


def pin_to_cores(cores: tuple[int, ...] | None) -> None:
    """Run this process, and every thread that it will start, on these cores only."""
    if cores is not None:
        os.sched_setaffinity(0, cores)
