"""Cells that are runs of `attn train`, and measurements of their trained models. Several rows may share a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments.cells.cell import folder_of
from experiments.cells.resources import Workers
from experiments.display.lines import say
from experiments.display.progress import Display
from experiments.settings.run import Settings
from experiments.tables.sources.runs import Runs
from experiments.tables.sources.source import CellOutcome, Prediction, TableCell, Value
from experiments.tables.sources.step_clock import StepClock
from experiments.tables.sources.stored_numbers import Arguments, StoredNumbers

MEASURE_PREFIX = "measure."  # of overrides that are arguments: `measure.pairs=within`
MEASURED_SEQUENCES = 64  # held-out sequences for the measurement, from the start of the validation split


class MeasuredRuns:
    """A source whose cells are the numbers that `measure(run, ...)` in `measured/NAME.py` returns for the trained model
    of a row and seed.
    """

    def __init__(self, name: str, overrides: Mapping[str, list[str]], runs: Path) -> None:
        """Raises Mistake for overrides that do not compose, for wrong arguments, and for rows that are the same."""
        self._numbers = StoredNumbers(f"experiments.tables.measured.{name}", runs, of_call=frozenset({"run"}))
        self._arguments: dict[str, Arguments] = {}
        trained: dict[str, list[str]] = {}
        for row, of_row in overrides.items():
            of_measure = [override for override in of_row if override.startswith(MEASURE_PREFIX)]
            arguments = (override.removeprefix(MEASURE_PREFIX) for override in of_measure)
            self._arguments[row] = self._numbers.arguments(row, arguments)
            trained[row] = [override for override in of_row if override not in of_measure]
        # the first of the rows that share a run
        first: dict[tuple[str, ...], str] = {}
        self._trained_as = {row: first.setdefault(tuple(of_row), row) for row, of_row in trained.items()}
        self._runs = Runs({row: trained[row] for row in first.values()}, runs)

    def cells(self, seeds: Sequence[int]) -> list[TableCell]:
        """A cell for every row and seed. All rows of a seed stand before those of the next."""
        return [
            TableCell(row, seed, self._numbers.name(arguments, MEASURED_SEQUENCES, self._run(row, seed).name))
            for seed in seeds
            for row, arguments in self._arguments.items()
        ]

    def kept_seeds(self) -> set[int]:
        """The seeds of the runs that may be measured."""
        return self._runs.kept_seeds()

    def timed(self, row: str) -> None:
        """None, because such a table is not about step times."""

    def trained(self, row: str) -> list[Settings]:
        """The settings of the run that is measured. The names of the cells follow from the code that measures it."""
        return self._runs.trained(self._trained_as[row])

    def check(self) -> None:
        """Raises Mistake or DataError for everything that is certain to fail in the training."""
        self._runs.check()

    def outcome(self, cell: TableCell) -> CellOutcome:
        """The result of the training, and the measurements of its model; `pretrained` while these are missing."""
        trained = self._runs.outcome(self._run(cell.row, cell.seed))
        if trained.state != "done":
            return trained
        measured = self._numbers.outcome(cell.name)
        if measured.state == "done" and measured.result["of_loss"] != trained.result["validation_loss"]:
            # the run was trained again since
            measured = CellOutcome("missing")
        if measured.state == "missing":
            return CellOutcome("pretrained", "not measured yet", trained.result)
        more = measured.result if measured.state == "done" else {}
        return CellOutcome(measured.state, measured.reason, trained.result | more)

    def sizes(self, row: str) -> dict[str, Value]:
        """The sizes of the trained model."""
        return self._runs.sizes(self._trained_as[row])

    def predict(self, cell: TableCell, clock: StepClock, roughly: bool = False) -> Prediction:
        """The predicted cost of the training; a measurement adds little."""
        return self._runs.predict(self._run(cell.row, cell.seed), clock, roughly)

    def at_once(self, cells: Sequence[TableCell], workers: Workers) -> int:
        """The number of these cells whose runs are trained side by side."""
        return self._runs.at_once(list(self._by_run(cells)), workers)

    def make(self, cells: Sequence[TableCell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Train the missing runs, then measure them."""
        by_run = self._by_run(cells)
        self._runs.make(list(by_run), group, console, workers)
        for run, of_run in by_run.items():
            unmeasured = [cell for cell in of_run if self.outcome(cell).state == "pretrained"]
            if unmeasured:
                self._measure(run, unmeasured, console)

    def _measure(self, run: TableCell, cells: Sequence[TableCell], console: Console) -> None:
        from experiments.heads.trained_run import open_trained_run

        settings = self._runs.settings(run)
        with Display() as display:
            trained = open_trained_run(folder_of(settings), settings, "newest", MEASURED_SEQUENCES, display)
        loss = self._runs.outcome(run).result["validation_loss"]
        for cell in cells:
            numbers = self._numbers.measure(trained, **self._arguments[cell.row])
            self._numbers.store(cell.name, numbers | {"of_loss": loss})
            shown = ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
            say(console, f"{cell.row}, seed {cell.seed}: {shown}")

    def _run(self, row: str, seed: int) -> TableCell:
        """The run whose model is measured for a row and seed."""
        return self._runs.cell(self._trained_as[row], seed)

    def _by_run(self, cells: Sequence[TableCell]) -> dict[TableCell, list[TableCell]]:
        """The cells by the run that they measure."""
        by_run: dict[TableCell, list[TableCell]] = {}
        for cell in cells:
            by_run.setdefault(self._run(cell.row, cell.seed), []).append(cell)
        return by_run
