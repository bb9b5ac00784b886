"""What the process of a cell is told by its parent."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Assignment:
    """The run folder to train in, the cores to keep to (None: any), and how many cells are trained side by side."""

    folder: Path
    cores: tuple[int, ...] | None = None
    cells_at_once: int = 1

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self) | {"folder": str(self.folder)})

    @classmethod
    def from_line(cls, line: str | bytes) -> Assignment:
        """What `to_line` wrote."""
        fields = json.loads(line)
        cores = fields["cores"]
        return cls(Path(fields["folder"]), None if cores is None else tuple(cores), fields["cells_at_once"])


def pin_to_cores(cores: tuple[int, ...] | None) -> None:
    """Run this process, and every thread that it will start, on these cores only."""
    if cores is not None:
        os.sched_setaffinity(0, cores)
