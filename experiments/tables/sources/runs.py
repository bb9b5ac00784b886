"""Cells that are runs of `attn train`: the same folders, shared with every other command and continued by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.config.compose import compose
from experiments.data.errors import DataError
from experiments.launch.cell import check_unchanged, folder_of
from experiments.record.durable import RunFolderError
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings
from experiments.tables.overrides import merged
from experiments.tables.sources.source import Cell, Finding, Prediction, State

# how a result's status reads in a table
STATES: dict[str, State] = {"done": "done", "nan": "diverged", "interrupted": "missing"}
# of every row, or what is measured of a long one would depend on what a trial found; unless the user says otherwise
COMMON = ["trainer.compile=false"]


class Runs:
    def cells(self, rows: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> list[Cell]:
        """As the words compose; the seed is set last. Raises Mistake."""
        composed: dict[str, Settings] = {}
        wrong: dict[str, str] = {}
        for row, words in rows.items():
            try:
                composed[row] = compose(merged(COMMON, words, [f"runs={runs}"]))
            except Mistake as mistake:
                wrong[row] = str(mistake)
        if wrong:
            of_all = len(wrong) == len(rows) and len(set(wrong.values())) == 1
            lines = set(wrong.values()) if of_all else (f"{row}: {said}" for row, said in wrong.items())
            raise Mistake("\n".join(lines))
        found = [
            (row, settings.model_copy(update={"seed": seed})) for seed in seeds for row, settings in composed.items()
        ]
        cells = [Cell(row, settings.seed, folder_of(settings).name, settings) for row, settings in found]
        _check_distinct(cells)
        return cells

    def check(self, cells: list[Cell]) -> None:
        from experiments.launch.plan import check_data
        from experiments.launch.report import check_buildable
        from experiments.training.run_length import planned_steps

        for cell in cells:
            planned_steps(cell.what)
        check_data([cell.what for cell in cells])
        check_buildable([cell.what for cell in cells])

    def finding(self, cell: Cell) -> Finding:
        folder = folder_of(cell.what)
        try:
            result = folder.result()
            if result is None:
                return Finding("missing", "begun" if folder.path.exists() else "")
            if result.attention_digest is not None:
                check_unchanged(cell.what, folder, result)
            facts = {"environment": folder.environment() or {}}
        except (DataError, RunFolderError) as error:
            return Finding("refused", str(error))
        return Finding(STATES.get(result.status, "failed"), result.reason or "", result.to_dict() | facts)

    def sizes(self, cell: Cell) -> dict[str, Any]:
        """Names and sizes as the papers have them; multiplies of one attention layer for one sequence."""
        import torch

        from experiments.model.variant import build_attention

        settings: Settings = cell.what
        variant = settings.variant
        with torch.device("meta"):
            attention = build_attention(variant)
        cost, sizes = attention.cost(settings.length, settings.length), attention.sizes
        return {
            "variant": variant["name"],
            "h_k": sizes.key_heads,
            "h": sizes.softmax_heads,
            "h_v": sizes.value_heads,
            "d_k": sizes.key_size,
            "d_v": sizes.value_size,
            "layers": settings.layers,
            "hidden_size": settings.hidden_size,
            "attention_parameters": cost.parameters,
            "multiplies": cost.multiplies,
        }

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        from experiments.tables.sources.calibration import predict

        return predict(cell.what, console, roughly)

    def make(self, cells: list[Cell], group: str, console: Console) -> None:
        """Every cell in a process of its own; one that came to NaN did so for its seed, and isn't tried again."""
        from experiments.launch.local import train_cells
        from experiments.launch.plan import in_sweep

        train_cells([in_sweep(cell.what, group) for cell in cells if self.finding(cell).state != "diverged"], console)


def _check_distinct(cells: list[Cell]) -> None:
    """Two rows that are the same run would be compared with themselves."""
    rows: dict[str, str] = {}
    for cell in cells:
        if (other := rows.setdefault(cell.name, cell.row)) != cell.row:
            raise Mistake(f"the rows {other} and {cell.row} are the same run", "an override makes them equal")
