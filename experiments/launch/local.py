"""The cells of a sweep, trained here one after the other, with their progress."""

from __future__ import annotations

import functools

from rich.console import Console

from experiments.launch.report import SweepProgress
from experiments.launch.worker import Outcome, done_before, run_cell
from experiments.settings.run import Settings
from experiments.training.run_length import planned_steps


def train_cells(cells: list[Settings], console: Console) -> list[Outcome]:
    """Train what is missing; the outcome of every cell, in order. One that fails ends no other. Raises Interrupted."""
    outcomes: list[Outcome] = []
    with SweepProgress(len(cells), console).shown() as progress:
        for cell in cells:
            watch = functools.partial(progress.watch, planned_steps=planned_steps(cell))
            before = done_before(cell)
            outcomes.append(before or run_cell(cell, watch))
            (progress.skip if before and before.done else progress.end)(outcomes[-1])
    return outcomes
