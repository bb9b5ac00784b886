"""Cells that are calls of a function: small numerical experiments, each kept in a file of its own."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from experiments.record.durable import explained, number, to_json, write
from experiments.record.environment import describe
from experiments.settings.mistake import Mistake, nearest
from experiments.tables.sources.source import Cell, Finding, Prediction

FOLDER = "computed"  # of the runs, beside the run folders


class Computed:
    """`numerical/NAME.py` has `measure(*, seed, ...)`: a dict of numbers. A row's words are its arguments."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module = importlib.import_module(f"experiments.tables.numerical.{name}")
        self._code = hashlib.sha256(inspect.getsource(self._module).encode()).hexdigest()

    def cells(self, rows: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> list[Cell]:
        arguments = {row: self._arguments(row, words) for row, words in rows.items()}
        return [
            Cell(row, seed, self._file_name(given, seed), (runs / FOLDER, given))
            for seed in seeds
            for row, given in arguments.items()
        ]

    def check(self, cells: list[Cell]) -> None:
        """The arguments are all there is to check, and have been."""

    def finding(self, cell: Cell) -> Finding:
        path = self._path(cell)
        if not path.exists():
            return Finding("missing")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return Finding("refused", f"{path}: {error}; remove it")
        return Finding("done", result={key: number(value) for key, value in found.items()})

    def sizes(self, cell: Cell) -> dict[str, Any]:
        return dict(cell.what[1])

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        """As long as one like it took, or takes now."""
        made = self.finding(cell).result
        seconds = made["wall_seconds"] if made else self._measure(cell)["wall_seconds"]
        return Prediction(seconds, None, None)

    def make(self, cells: list[Cell], group: str, console: Console) -> None:
        missing = [cell for cell in cells if self.finding(cell).state == "missing"]
        for count, cell in enumerate(missing, start=1):
            path = self._path(cell)
            with explained(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            found = self._measure(cell)
            write(path, to_json(found, indent=2) + "\n")
            said = f"[{count}/{len(missing)}] {cell.row}, seed {cell.seed}: {found['wall_seconds']:.1f} s"
            console.print(said, markup=False, highlight=False)

    def _measure(self, cell: Cell) -> dict[str, Any]:
        began = time.perf_counter()
        found = self._module.measure(seed=cell.seed, **cell.what[1])
        facts = describe({}, cell.seed, None)
        record = {"wall_seconds": time.perf_counter() - began, "attention_digest": self._code}
        return found | record | {"device": facts["cpu"], "environment": facts, "config": cell.what[1]}

    def _arguments(self, row: str, words: list[str]) -> dict[str, Any]:
        """Raises Mistake for a word that is no argument, and for an argument that no word gives."""
        known = [name for name in inspect.signature(self._module.measure).parameters if name != "seed"]
        given = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)}
        for key in given:
            if key not in known:
                raise Mistake(f"{row}: there is no setting {key!r}" + nearest(key, known), f"it has {', '.join(known)}")
        if missing := [name for name in known if name not in given]:
            raise Mistake(f"{row}: {', '.join(missing)} is missing")
        return {name: given[name] for name in known}

    def _file_name(self, arguments: dict[str, Any], seed: int) -> str:
        text = json.dumps([self._code, arguments, seed], sort_keys=True)
        return f"{self._name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def _path(self, cell: Cell) -> Path:
        return Path(cell.what[0]) / f"{cell.name}.json"
