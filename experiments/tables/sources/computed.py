"""Cells that are calls of a function: small numerical experiments, whose results are kept in a file for each call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.cells.resources import Workers
from experiments.display.lines import say
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import MissingExtra
from experiments.record.environment import describe
from experiments.record.result import UNKNOWN
from experiments.settings.run import Settings
from experiments.tables.sources.source import CellOutcome, Prediction, TableCell, Value
from experiments.tables.sources.step_clock import StepClock
from experiments.tables.sources.stored_numbers import StoredNumbers


class Computed:
    """A source whose rows are the arguments of `measure(*, seed, ...)`, a function of `numerical/NAME.py` that returns
    a dict of numbers.
    """

    def __init__(self, name: str, overrides: Mapping[str, list[str]], runs: Path) -> None:
        """Raises Mistake for an override that is not an argument, and for an argument without an override."""
        self._numbers = StoredNumbers(f"experiments.tables.numerical.{name}", runs, of_call=frozenset({"seed"}))
        self._arguments = {row: self._numbers.arguments(row, of_row) for row, of_row in overrides.items()}

    def cells(self, seeds: Sequence[int]) -> list[TableCell]:
        """A cell for every row and seed. All rows of a seed stand before those of the next."""
        return [
            TableCell(row, seed, self._numbers.name(arguments, seed))
            for seed in seeds
            for row, arguments in self._arguments.items()
        ]

    def kept_seeds(self) -> set[int]:
        """The seeds of the function's calls, whatever their arguments."""
        return self._numbers.kept_seeds()

    def timed(self, row: str) -> None:
        """None, because nothing is trained."""

    def trained(self, row: str) -> list[Settings]:
        """Nothing. The names of the cells follow from the code that computes them."""
        return []

    def check(self) -> None:
        """Does nothing: only the arguments could be wrong, and they are checked already."""

    def outcome(self, cell: TableCell) -> CellOutcome:
        """The content of the cell's file."""
        outcome = self._numbers.outcome(cell.name)
        return replace(outcome, result=UNKNOWN | outcome.result)

    def sizes(self, row: str) -> dict[str, Value]:
        """The arguments of a row."""
        return dict(self._arguments[row])

    def predict(self, cell: TableCell, clock: StepClock, roughly: bool = False) -> Prediction:
        """The time that the cell took, or that it takes when it is computed here; unknown if a library that it needs is
        missing.
        """
        try:
            outcome = self.outcome(cell)
            record = outcome.result if outcome.state == "done" else self._record(cell)
        except MissingExtra:
            return Prediction(None)
        return Prediction(record["wall_seconds"])

    def at_once(self, cells: Sequence[TableCell], workers: Workers) -> int:
        """One, in this process. Raises Mistake for several workers."""
        if workers not in ("auto", 1):
            raise Mistake(f"--workers {workers}: these cells are computed one after the other")
        return 1

    def make(self, cells: Sequence[TableCell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Compute the missing cells in this process, one after the other. Raises Mistake for several workers."""
        self.at_once(cells, workers)
        missing = [cell for cell in cells if self.outcome(cell).state == "missing"]
        for count, cell in enumerate(missing, start=1):
            record = self._record(cell)
            self._numbers.store(cell.name, record)
            line = f"[{count}/{len(missing)}] {cell.row}, seed {cell.seed}: {record['wall_seconds']:.1f} s"
            say(console, line)

    def _record(self, cell: TableCell) -> dict[str, Any]:
        """The numbers of a cell, computed here, with the circumstances that a run's result also has."""
        arguments = self._arguments[cell.row]
        began = time.perf_counter()
        numbers = self._numbers.measure(seed=cell.seed, **arguments)
        facts = describe({}, cell.seed, None)
        record = {"wall_seconds": time.perf_counter() - began, "code_digest": self._numbers.code}
        return numbers | record | {"device": facts["cpu"], "environment": facts, "config": arguments}
