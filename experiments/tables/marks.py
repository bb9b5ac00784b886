"""Marks of rows that may not decide a claim: their models have learned too little, or at a rate that was not tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.statistics.comparison import ClaimOutcome, Compared, Mark, MarkKind
from experiments.statistics.plateau import free_direction, stuck, unknown_gain
from experiments.tables.definition.table import Budget
from experiments.tables.sources.source import CellOutcome


def stuck_of(outcomes: Sequence[CellOutcome], budget: Budget) -> dict[MarkKind, str]:
    """Reasons why a row may not decide any claim, from the outcomes of its cells.

    A row is stuck if a cell diverged or ended at the plateau, or if it is not known what the last tenth of its training
    gained. Rows of computed cells have no loss of a unigram model, and no mark.
    """
    results = [outcome.result for outcome in outcomes if outcome.state == "done"]
    reasons = stuck(results, sum(outcome.state == "diverged" for outcome in outcomes), len(outcomes))
    if budget.score == "validation_loss" and (why := unknown_gain(results)):
        reasons["unknown gain"] = why
    return reasons


def untuned_marks(
    compared: Compared, outcome: ClaimOutcome, factors: Mapping[str, float], untuned: Iterable[str]
) -> list[Mark]:
    """Reasons why rows with a learning rate that was not tuned may not decide a comparison with an outcome.

    A tuned rate could only improve such a row, so the row may decide by being better, but not by being worse or equally
    good.

    factors: those of the rows in the difference. untuned: the rows whose rate was not tuned.
    """
    free = free_direction(compared, outcome)
    could_undo = [row for row in untuned if (factor := factors.get(row)) and factor * free <= 0]
    return [Mark(row, "untuned", "may do better, because its learning rate was not tuned") for row in could_undo]
