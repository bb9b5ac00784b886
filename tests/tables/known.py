"""A table of three rows whose outcomes are known."""

from __future__ import annotations

from dataclasses import replace

from experiments.display.rows import Row
from experiments.record.result import UNKNOWN
from experiments.statistics.evidence import Evidence
from experiments.tables import seed_plan
from experiments.tables.conditions import Conditions
from experiments.tables.definition import published
from experiments.tables.definition.request import Request, load
from experiments.tables.definition.table import Scheme
from experiments.tables.report import Report
from experiments.tables.report_of_cells import report_of_cells
from experiments.tables.seed_plan import CheckedPlan, SeedPlan
from experiments.tables.sources.source import CellOutcome, Outcomes, TableCell
from experiments.tables.step_times import StepTimes
from tests.fixtures.tables import NAME

# the printed F1 falls with the number of heads; here more heads have a higher loss, but 32 heads a lower one than 16
LOSSES = {
    "h8": (4.00, 4.02, 4.01, 4.00, 4.02, 4.01),
    "h16": (4.30, 4.35, 4.32, 4.31, 4.34, 4.32),
    "h32": (4.20, 4.26, 4.22, 4.21, 4.25, 4.22),
}
STEP_TIMES = StepTimes(
    {"h8": {0: 0.1, 1: 0.1, 2: 0.1}, "h16": {0: 0.125, 1: 0.125, 2: 0.5}, "h32": {0: 0.15, 1: 0.15, 2: 0.15}},
    "a machine",
    0.0,
)


class Known:
    """A source with given outcomes."""

    def __init__(self, outcomes: dict[tuple[str, int], CellOutcome]) -> None:
        self.outcomes = outcomes

    def cells(self, seeds) -> list[TableCell]:
        return [TableCell(row, seed, f"{row}-s{seed}") for row, seed in self.outcomes if seed in seeds]

    def outcome(self, cell: TableCell) -> CellOutcome:
        return self.outcomes[cell.row, cell.seed]

    def kept_seeds(self) -> set[int]:
        return {seed for _, seed in self.outcomes}

    def timed(self, row: str) -> None:
        """Nothing is trained."""

    def trained(self, row: str) -> list[object]:
        """Nothing is trained."""
        return []

    def sizes(self, row: str) -> dict[str, object]:
        heads = int(row.partition("@")[0][1:])
        return {
            "variant": "multi_head",
            "h_k": heads,
            "h": heads,
            "h_v": heads,
            "d_k": 192 // heads,
            "layers": 4,
            "multiplies": 1000,
        }


def done(loss: float, **more) -> CellOutcome:
    result = {"validation_loss": loss, "unigram_loss": 6.5, "late_gain": 0.004, "peak_memory_bytes": 5 * 10**8}
    result |= {"parameters": {"total": 2_570_752}, "steps": 1200, "tokens": 1_228_800, "device": "a machine, 2 threads"}
    result |= {
        "corpus": {"kind": "text", "sha256": {"train": ["abcdef0123456789"]}},
        "code_digest": "0123456789ab",
    }
    result |= {"environment": {"started": "2026-11-21T10:00:00+0000"}, "precision": "fp32", "backend": "sdpa"}
    return CellOutcome("done", result=UNKNOWN | result | {"config": {"variant": {"name": "multi_head"}}} | more)


def made(
    changes: dict[tuple[str, int], CellOutcome] | None = None,
    overrides: tuple[str, ...] = (),
    file=None,
    table=None,
    step_times: StepTimes = STEP_TIMES,
) -> Report:
    request = Request(NAME, table or load(NAME), "nano", range(6), overrides, published_file=file)
    outcomes = {
        (key, seed): done(loss)
        for key, of in request.configurations.items()
        for seed, loss in enumerate(LOSSES[of.row])
    }
    source = Known(outcomes | (changes or {}))
    return report_of(request, source, Conditions(published.published_of(request), step_times))


def planned_by(evidence: Evidence, report: Report | None = None, **changes) -> Report:
    """A report whose seeds have a plan. changes: of the plan."""
    report = report or made()
    request = replace(report.request, names_seeds=True)
    parts = seed_plan._of_definition(request) | {"date": "2026-11-20T10:00:00+00:00", "cells": "b", "code": "c"}
    plan = SeedPlan(**parts | {"table": request.name, "budget": "nano", "seeds": [*range(6)]} | changes)
    checked = CheckedPlan(plan, seed_plan.changed_since(plan, request))
    facts = [*report.facts_of_cells, ("plan", "planned on 2026-11-21: seeds 6 to 9, 2 comparisons")]
    return replace(report, request=request, evidence=evidence, plan=checked, facts_of_cells=facts)


def report_of(request: Request, source: Known, conditions: Conditions) -> Report:
    return report_of_cells(request, source, request.seeds, Outcomes(source), conditions)


def line(found: Report, row: str) -> Row:
    return next(each for each in found.exact_rows() if each["row"] == row)


# means 4.25 and 4.15, so 16 heads look better; over the seeds that both have they are 0.1 worse than 4.05
UNEVEN = {"h8": (4.0, 4.1, 4.4, 4.5), "h16": (4.1, 4.2), "h32": (4.3, 4.4, 4.7, 4.8)}


def uneven() -> Report:
    changes = {(row, seed): CellOutcome("missing") for row in LOSSES for seed in range(6)}
    return made(
        changes | {(row, seed): done(loss) for row, losses in UNEVEN.items() for seed, loss in enumerate(losses)}
    )


def table_under(*schemes: str):
    """The table under schemes of positions, of which it has none."""
    positions = {name: Scheme(label=name, overrides=f"model.position={name}") for name in schemes}
    return load(NAME).model_copy(update={"positions": positions})


def untuned_table():
    table = load(NAME)
    (tuning,) = table.budget("nano").learning_rates.values()
    rates = {"multi_head": tuning.model_copy(update={"tried": {}})}
    budgets = {"nano": table.budget("nano").model_copy(update={"learning_rates": rates})}
    return table.model_copy(update={"budgets": budgets})
