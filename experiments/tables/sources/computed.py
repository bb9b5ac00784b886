"""Cells that are calls of a function: small numerical experiments, each kept in a file of its own."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.launch.resources import Workers
from experiments.record.environment import describe
from experiments.settings.extras import MissingExtra
from experiments.tables.sources.source import Cell, CellOutcome, Prediction, Value
from experiments.tables.sources.stored_numbers import StoredNumbers


class Computed:
    """A row is the arguments of `measure(*, seed, ...)`, a dict of numbers, in `numerical/NAME.py`."""

    def __init__(self, name: str, overrides: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> None:
        """Raises Mistake for an override that is no argument, and for an argument that no override gives."""
        self._numbers = StoredNumbers(f"experiments.tables.numerical.{name}", runs, given=frozenset({"seed"}))
        self._arguments = {
            row: self._numbers.arguments(row, dict(_pair(override) for override in of_row))
            for row, of_row in overrides.items()
        }
        self.cells = self._cells(seeds)

    def with_seeds(self, seeds: Sequence[int]) -> Computed:
        """The same rows with other seeds."""
        other = copy.copy(self)
        other.cells = self._cells(seeds)
        return other

    def timed(self, row: str) -> None:
        """Nothing is trained."""

    def check(self) -> None:
        """The arguments are all there is to check, and have been."""

    def outcome(self, cell: Cell) -> CellOutcome:
        """What the cell's file says."""
        return self._numbers.outcome(cell.name)

    def sizes(self, row: str) -> dict[str, Value]:
        """The arguments of a row."""
        return dict(self._arguments[row])

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        """The time that the cell took, or takes now; unknown where a library is missing that it needs."""
        try:
            record = self.outcome(cell).result or self._record(cell)
        except MissingExtra:
            return Prediction(None)
        return Prediction(record["wall_seconds"])

    def make(self, cells: Sequence[Cell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Compute what is missing, here, one cell after the other."""
        missing = [cell for cell in cells if self.outcome(cell).state == "missing"]
        for count, cell in enumerate(missing, start=1):
            record = self._record(cell)
            self._numbers.store(cell.name, record)
            line = f"[{count}/{len(missing)}] {cell.row}, seed {cell.seed}: {record['wall_seconds']:.1f} s"
            console.print(line, markup=False, highlight=False)

    def _cells(self, seeds: Sequence[int]) -> list[Cell]:
        return [
            Cell(row, seed, self._numbers.name(arguments, seed))
            for seed in seeds
            for row, arguments in self._arguments.items()
        ]

    def _record(self, cell: Cell) -> dict[str, Any]:
        """The numbers of a cell, computed now, with what a run's result has of its circumstances."""
        arguments = self._arguments[cell.row]
        began = time.perf_counter()
        numbers: dict[str, Any] = self._numbers.measure(seed=cell.seed, **arguments)
        facts = describe({}, cell.seed, None)
        record = {"wall_seconds": time.perf_counter() - began, "code_digest": self._numbers.code}
        return numbers | record | {"device": facts["cpu"], "environment": facts, "config": arguments}


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value
