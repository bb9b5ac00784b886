"""Cells that are calls of a function: small numerical experiments, each kept in a file of its own."""

from __future__ import annotations

import copy
import importlib
import inspect
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from experiments.launch.places import Workers
from experiments.record.durable import folder_for, number, read_sealed, write_sealed
from experiments.record.environment import describe
from experiments.settings.digest import digest, text_digest
from experiments.settings.mistake import Mistake, nearest
from experiments.tables.sources.source import Cell, Finding, Prediction, Value

FOLDER = "computed"  # of the runs, beside the run folders

Arguments = dict[str, Value]


class Computed:
    """A row is the arguments of `measure(*, seed, ...)`, a dict of numbers, in `numerical/NAME.py`."""

    def __init__(self, name: str, overrides: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> None:
        """Raises Mistake for an override that is no argument, and for an argument that no override gives."""
        module = importlib.import_module(f"experiments.tables.numerical.{name}")
        self._measure = module.measure
        self._code = text_digest(inspect.getsource(module))
        self._folder = runs / FOLDER
        self._arguments = {row: self._parsed(row, of_row) for row, of_row in overrides.items()}
        self._name = name
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

    def finding(self, cell: Cell) -> Finding:
        """What the cell's file says."""
        path = self._path(cell)
        if not path.exists():
            return Finding("missing")
        try:
            record = read_sealed(path)
        except (OSError, ValueError) as error:
            return Finding("refused", f"{path}: {error}; remove it")
        return Finding("done", result={key: number(value) for key, value in record.items()})

    def sizes(self, row: str) -> dict[str, Value]:
        """The arguments of a row."""
        return dict(self._arguments[row])

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        """The time that the cell took, or takes now."""
        return Prediction((self.finding(cell).result or self._record(cell))["wall_seconds"])

    def make(self, cells: Sequence[Cell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Compute what is missing, here, one cell after the other."""
        missing = [cell for cell in cells if self.finding(cell).state == "missing"]
        for count, cell in enumerate(missing, start=1):
            path = self._path(cell)
            folder_for(path.parent)
            record = self._record(cell)
            write_sealed(path, record)
            line = f"[{count}/{len(missing)}] {cell.row}, seed {cell.seed}: {record['wall_seconds']:.1f} s"
            console.print(line, markup=False, highlight=False)

    def _cells(self, seeds: Sequence[int]) -> list[Cell]:
        return [
            Cell(row, seed, f"{self._name}-{self._digest(arguments, seed)}")
            for seed in seeds
            for row, arguments in self._arguments.items()
        ]

    def _record(self, cell: Cell) -> dict[str, Any]:
        """The numbers of a cell, computed now, with what a run's result has of its circumstances."""
        arguments = self._arguments[cell.row]
        began = time.perf_counter()
        numbers: dict[str, Any] = self._measure(seed=cell.seed, **arguments)
        facts = describe({}, cell.seed, None)
        record = {"wall_seconds": time.perf_counter() - began, "code_digest": self._code}
        return numbers | record | {"device": facts["cpu"], "environment": facts, "config": arguments}

    def _parsed(self, row: str, overrides: list[str]) -> Arguments:
        """The arguments of a row. Raises Mistake for one that there isn't, and for one that is missing."""
        known = [name for name in inspect.signature(self._measure).parameters if name != "seed"]
        values = {key: yaml.safe_load(value) for key, _, value in (override.partition("=") for override in overrides)}
        for key in values:
            if key not in known:
                raise Mistake(f"{row}: there is no setting {key!r}" + nearest(key, known), f"it has {', '.join(known)}")
        if missing := [name for name in known if name not in values]:
            raise Mistake(f"{row}: {', '.join(missing)} is missing")
        return {name: values[name] for name in known}

    def _digest(self, arguments: Arguments, seed: int) -> str:
        return digest([self._code, arguments, seed])[:12]

    def _path(self, cell: Cell) -> Path:
        return self._folder / f"{cell.name}.json"
