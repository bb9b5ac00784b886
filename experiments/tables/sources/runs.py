"""Cells that are runs of `attn train`, in the same folders, which other commands share and can continue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments.cells.cell import check_unchanged, folder_of
from experiments.cells.resources import Workers, pool_for
from experiments.config.compose_many import Composer
from experiments.data.errors import DataError
from experiments.failures.failure import Mistake
from experiments.files.disk import files_named
from experiments.record.errors import RunFolderError, disk_errors_as_failures
from experiments.record.folder import seed_of
from experiments.settings.run import Settings
from experiments.tables.definition.overrides import merged
from experiments.tables.sources.row_sizes import row_sizes
from experiments.tables.sources.source import CellOutcome, Prediction, State, TableCell, Value
from experiments.tables.sources.step_clock import StepClock

# a result's status as a table shows it
STATES: dict[str, State] = {"done": "done", "nan": "diverged", "interrupted": "begun", "pruned": "begun"}
# for every row, unless the user says otherwise; else the measurements of a long run would depend on a trial
COMMON_OVERRIDES = ["trainer.compile=false"]


class Runs:
    """A source whose rows are configurations and whose cells are their runs, one for each seed."""

    def __init__(self, overrides: Mapping[str, list[str]], runs: Path) -> None:
        """Raises Mistake for overrides that do not compose, and for rows that are the same run."""
        self.rows = _composed(overrides, runs)
        self._folder = runs
        _check_distinct(self.cells([0]))

    def cells(self, seeds: Sequence[int]) -> list[TableCell]:
        """A cell for every row and seed. All rows of a seed stand before those of the next."""
        return [self.cell(row, seed) for seed in seeds for row in self.rows]

    def cell(self, row: str, seed: int) -> TableCell:
        """The cell of a row and seed."""
        return TableCell(row, seed, folder_of(self._seeded(row, seed)).name)

    def settings(self, cell: TableCell) -> Settings:
        """The settings of a cell's training."""
        return self._seeded(cell.row, cell.seed)

    def kept_seeds(self) -> set[int]:
        """The seeds in the names of run folders, of whatever settings. Raises RunFolderError."""
        with disk_errors_as_failures(self._folder):
            names = (path.name for path in files_named(self._folder, "*"))
            return {seed for name in names if (seed := seed_of(name)) is not None}

    def timed(self, row: str) -> Settings:
        """The settings of the row's training, which are the same for every seed except the seed itself."""
        return self.rows[row]

    def trained(self, row: str) -> list[Settings]:
        """The settings of the row's training."""
        return [self.rows[row]]

    def check(self) -> None:
        """Raises Mistake or DataError for a length, a device, a text or a model that is certain to fail."""
        from experiments.launch.check_cells import check_buildable, check_cell, check_data

        planned = list(self.rows.values())
        for settings in planned:
            check_cell(settings, runs_here=True)
        check_data(planned)
        check_buildable(planned)

    def outcome(self, cell: TableCell) -> CellOutcome:
        """The result in the run folder."""
        return outcome_of_run(self.settings(cell))

    def sizes(self, row: str) -> dict[str, Value]:
        """Names and sizes as in the papers, and the multiplications of one attention layer for one sequence."""
        return row_sizes(self.rows[row])

    def predict(self, cell: TableCell, clock: StepClock, roughly: bool = False) -> Prediction:
        """The predicted cost of training the cell, from a few of its steps, or roughly from its FLOPs."""
        from experiments.tables.sources.calibration import predict

        return predict(self.settings(cell), clock, roughly)

    def at_once(self, cells: Sequence[TableCell], workers: Workers) -> int:
        """The number of these cells that are trained side by side."""
        return pool_for([self.settings(cell) for cell in cells], workers).at_once

    def make(self, cells: Sequence[TableCell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Train each cell in its own process.

        A cell that ended in NaN would do so again with its seed, so it is not tried again.
        """
        from experiments.launch.local import train_cells
        from experiments.launch.plan import labelled_with_sweep

        unfinished = (self.settings(cell) for cell in cells if self.outcome(cell).state != "diverged")
        train_cells([labelled_with_sweep(settings, group) for settings in unfinished], console, workers)

    def _seeded(self, row: str, seed: int) -> Settings:
        return self.rows[row].model_copy(update={"seed": seed})


def outcome_of_run(settings: Settings) -> CellOutcome:
    """The outcome of a run, pretrained or fine-tuned.

    Raises RunFolderError and OSError if the folder of the runs cannot be read.
    """
    folder = folder_of(settings)
    try:
        result = folder.result()
        if result is None:
            return CellOutcome("begun" if folder.path.exists() else "missing")
        folder.check_files()
        if result.code_digest is not None:
            check_unchanged(settings, folder, result)
        facts = {"environment": folder.environment() or {}}
    except (DataError, RunFolderError) as error:
        if not folder.path.exists():
            # the reason holds for every run
            raise
        return CellOutcome("refused", str(error))
    return CellOutcome(STATES.get(result.status, "failed"), result.reason or "", result.to_dict() | facts)


def _composed(overrides: Mapping[str, list[str]], runs: Path) -> dict[str, Settings]:
    """The settings of each row.

    Raises Mistake that names every wrong row; a mistake that all rows share is named once.
    """
    settings: dict[str, Settings] = {}
    mistakes: dict[str, str] = {}
    composer = Composer()
    for row, of_row in overrides.items():
        try:
            settings[row] = composer.compose(merged(COMMON_OVERRIDES, of_row, [f"runs={runs}"]))
        except Mistake as mistake:
            mistakes[row] = str(mistake)
    if mistakes:
        of_all = len(mistakes) == len(overrides) and len(set(mistakes.values())) == 1
        lines = set(mistakes.values()) if of_all else (f"{row}: {reason}" for row, reason in mistakes.items())
        raise Mistake("\n".join(lines))
    return settings


def _check_distinct(cells: Sequence[TableCell]) -> None:
    """Raises Mistake for two rows that are the same run, because they would be compared with themselves."""
    rows: dict[str, str] = {}
    for cell in cells:
        if (other := rows.setdefault(cell.name, cell.row)) != cell.row:
            raise Mistake(
                f"the rows {other} and {cell.row} are the same run", "leave out the override that makes them equal"
            )
