"""Cells that are runs of `attn train`: the same folders, shared with every other command and continued by it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments.config.compose import compose
from experiments.data.errors import DataError
from experiments.launch.cell import check_unchanged, folder_of
from experiments.launch.resources import Workers
from experiments.record.durable import RunFolderError
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings
from experiments.tables.definition.overrides import merged
from experiments.tables.sources.source import Cell, CellOutcome, Prediction, State, Value

# how a result's status reads in a table
STATES: dict[str, State] = {"done": "done", "nan": "diverged", "interrupted": "missing", "pruned": "missing"}
# of every row, or what is measured of a long one would depend on what a trial found; unless the user says otherwise
COMMON_OVERRIDES = ["trainer.compile=false"]


class Runs:
    """A row is a configuration, and a cell is its run with a seed."""

    def __init__(self, overrides: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> None:
        """Raises Mistake for overrides that don't compose, and for rows that are the same run."""
        self._rows = _composed(overrides, runs)
        self._settings = self._cells(seeds)
        _check_distinct(self.cells)

    def with_seeds(self, seeds: Sequence[int]) -> Runs:
        """The same rows with other seeds."""
        other = copy.copy(self)
        other._settings = self._cells(seeds)
        return other

    @property
    def cells(self) -> list[Cell]:
        """A cell for every row and seed; all rows of a seed before those of the next."""
        return list(self._settings)

    def settings(self, cell: Cell) -> Settings:
        """What a cell is trained with."""
        return self._settings[cell]

    def timed(self, row: str) -> Settings:
        """What the row is trained with, whatever the seed."""
        return self._rows[row]

    def check(self) -> None:
        """Raises Mistake or DataError for a length, a text or a model that can be known to fail."""
        from experiments.launch.plan import check_data
        from experiments.launch.report import check_buildable
        from experiments.training.run_length import planned_steps

        planned = list(self._settings.values())
        for settings in planned:
            planned_steps(settings)
        check_data(planned)
        check_buildable(planned)

    def outcome(self, cell: Cell) -> CellOutcome:
        """What is in the run folder."""
        return outcome_of_run(self.settings(cell))

    def sizes(self, row: str) -> dict[str, Value]:
        """Names and sizes as the papers have them; multiplies of one attention layer for one sequence."""
        import torch

        from experiments.model.layers.attention import build_attention

        settings = self._rows[row]
        with torch.device("meta"):
            layer = build_attention(settings.variant)
        cost = layer.cost(settings.length, settings.length)
        return {
            "variant": settings.variant["name"],
            "h_k": layer.sizes.key_heads,
            "h": layer.sizes.softmax_heads,
            "h_v": layer.sizes.value_heads,
            "d_k": layer.sizes.key_size,
            "d_v": layer.sizes.value_size,
            "layers": settings.layers,
            "hidden_size": settings.hidden_size,
            "attention_parameters": cost.parameters,
            "multiplies": cost.multiplies,
        }

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        """What training the cell will cost, from a few steps of it, or roughly from its FLOPs."""
        from experiments.tables.sources.calibration import predict

        return predict(self.settings(cell), console, roughly)

    def make(self, cells: Sequence[Cell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Train each cell in a process of its own; one that came to NaN did so for its seed, and isn't tried again."""
        from experiments.launch.local import train_cells
        from experiments.launch.plan import labelled_with_sweep

        unfinished = (self.settings(cell) for cell in cells if self.outcome(cell).state != "diverged")
        train_cells([labelled_with_sweep(settings, group) for settings in unfinished], console, workers)

    def _cells(self, seeds: Sequence[int]) -> dict[Cell, Settings]:
        cells: dict[Cell, Settings] = {}
        for seed in seeds:
            for row, unseeded in self._rows.items():
                settings = unseeded.model_copy(update={"seed": seed})
                cells[Cell(row, seed, folder_of(settings).name)] = settings
        return cells


def outcome_of_run(settings: Settings) -> CellOutcome:
    """What a run came to, pretrained or fine-tuned."""
    folder = folder_of(settings)
    try:
        result = folder.result()
        if result is None:
            return CellOutcome("missing", "begun" if folder.path.exists() else "")
        folder.check_files()
        if result.code_digest is not None:
            check_unchanged(settings, folder, result)
        facts = {"environment": folder.environment() or {}}
    except (DataError, RunFolderError) as error:
        return CellOutcome("refused", str(error))
    return CellOutcome(STATES.get(result.status, "failed"), result.reason or "", result.to_dict() | facts)


def _composed(overrides: Mapping[str, list[str]], runs: Path) -> dict[str, Settings]:
    """The settings of each row. Raises Mistake that names every wrong row, or says once what is wrong in all."""
    settings: dict[str, Settings] = {}
    mistakes: dict[str, str] = {}
    for row, of_row in overrides.items():
        try:
            settings[row] = compose(merged(COMMON_OVERRIDES, of_row, [f"runs={runs}"]))
        except Mistake as mistake:
            mistakes[row] = str(mistake)
    if mistakes:
        of_all = len(mistakes) == len(overrides) and len(set(mistakes.values())) == 1
        lines = set(mistakes.values()) if of_all else (f"{row}: {reason}" for row, reason in mistakes.items())
        raise Mistake("\n".join(lines))
    return settings


def _check_distinct(cells: Sequence[Cell]) -> None:
    """Two rows that are the same run would be compared with themselves."""
    rows: dict[str, str] = {}
    for cell in cells:
        if (other := rows.setdefault(cell.name, cell.row)) != cell.row:
            raise Mistake(f"the rows {other} and {cell.row} are the same run", "an override makes them equal")
