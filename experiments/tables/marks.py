"""Marks of rows that may not decide a claim, because their models have learned too little."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.statistics.plateau import mean_late_gain, stuck
from experiments.tables.definition.table import Budget
from experiments.tables.sources.source import CellOutcome


@dataclass(frozen=True)
class Mark:
    """The facts about a row's training that affect whether it may decide a claim."""

    stuck: str = ""  # reason why the row may not decide a claim; empty: it may
    late_gain: float | None = None  # nats that the last tenth of its steps gained, the mean over seeds


def mark(outcomes: Iterable[CellOutcome], budget: Budget) -> Mark:
    """The mark of a row, from the outcomes of its cells. A row is stuck if a cell diverged or ended at the plateau.

    Rows of computed cells have no loss of a unigram model, and no mark.
    """
    outcomes = list(outcomes)
    results = [outcome.result for outcome in outcomes if outcome.state == "done"]
    diverged = sum(outcome.state == "diverged" for outcome in outcomes)
    gain = mean_late_gain(results) if budget.score == "validation_loss" else None
    return Mark(stuck(results, diverged, len(outcomes)), gain)
