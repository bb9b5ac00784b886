"""A source of random scores whose cells cost nothing, and what tests of seeds ask of it."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from experiments.record.result import UNKNOWN
from experiments.statistics.evidence import Evidence
from experiments.tables.conditions import Conditions
from experiments.tables.definition.request import Request, load
from experiments.tables.report import Report
from experiments.tables.report_of_cells import report_of_cells
from experiments.tables.seed_plan import CheckedPlan, evidence_of, plan_of, plans
from experiments.tables.seeds import begun_seeds
from experiments.tables.sources.source import CellOutcome, Outcomes, TableCell
from tests.fixtures.tables import NAME

QUIET = Console(file=io.StringIO())


class Made:
    """A source with random scores instead of trained cells: a mean for each row, plus luck for each seed."""

    def __init__(self, rows: dict[str, float], spread: float) -> None:
        self.rows, self.spread = rows, spread
        self.done: dict[tuple[str, int], float] = {}
        self.made: list[tuple[str, int]] = []
        self.failing: set[str] = set()

    def cells(self, seeds) -> list[TableCell]:
        return [TableCell(row, seed, f"{row}-s{seed}") for seed in seeds for row in self.rows]

    def kept_seeds(self) -> set[int]:
        return {seed for _, seed in self.done}

    def timed(self, row):
        return None

    def trained(self, row):
        return []

    def sizes(self, row):
        return {"h": int(row[1:])}

    def outcome(self, cell: TableCell) -> CellOutcome:
        if (loss := self.done.get((cell.row, cell.seed))) is None:
            return CellOutcome("missing")
        if np.isnan(loss):
            return CellOutcome("failed", "as it was told to")
        result = {"validation_loss": loss, "unigram_loss": 9.0, "late_gain": 0.0, "wall_seconds": 60.0}
        return CellOutcome("done", result=UNKNOWN | result)

    def make(self, cells, group, console, workers=None) -> None:
        for cell in cells:
            luck = np.random.default_rng(cell.seed).normal()
            own = np.random.default_rng([cell.seed, int(cell.row[1:])]).normal()
            failed = cell.row in self.failing
            self.done[cell.row, cell.seed] = np.nan if failed else self.rows[cell.row] + luck + self.spread * own
            self.made.append((cell.row, cell.seed))


def request(tmp_path, seeds=range(5), named=False) -> Request:
    return Request(NAME, load(NAME), "nano", seeds, runs=tmp_path, names_seeds=named)


def begun(source, least: int = 0) -> list[int]:
    return begun_seeds(source, Outcomes(source), least)


def reported(asked: Request, source: Made, outcomes: Outcomes | None = None) -> Report:
    return report_of_cells(
        asked, source, sorted({*asked.seeds, *begun(source)}), outcomes or Outcomes(source), Conditions()
    )


def checked(asked: Request, source: Made) -> list[CheckedPlan]:
    return plans(asked, source, Outcomes(source))


def evidence(asked: Request, source: Made) -> Evidence:
    return evidence_of(plan_of(asked.seeds, checked(asked, source)), source, Outcomes(source))
