"""Marks of rows that may not decide a comparison: their models diverged, have learned too little for their loss to
depend on attention, still learn, or learned at a rate that was not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.statistics.comparison import ClaimOutcome, Compared, Mark, MarkKind

PLATEAU = 0.5  # nats that a run has to end below the loss of a unigram model


def why_stuck(results: Sequence[Mapping[str, Any]], diverged: int, count: int, *, by_loss: bool) -> dict[MarkKind, str]:
    """Why a row may not decide a claim: how many of its runs diverged, ended at the plateau, and may still have been
    learning, if any did.

    results: those of the runs that ended with a loss. count: the number of all runs. by_loss: whether the claim is
    about the loss of language models, whose late gain has to be known.
    """
    reasons: dict[MarkKind, str] = {}
    if diverged:
        reasons["diverged"] = f"diverged with {_seeds(diverged, count)}"
    if low := _at_plateau(results):
        reasons["plateau"] = low
    if by_loss and (unknown := _unknown_gain(results)):
        reasons["unknown gain"] = unknown
    return reasons


def mean_late_gain(gains: Iterable[float | None]) -> float | None:
    """The mean over runs of `late_gain`, in nats; None if no run records it."""
    known = [gain for gain in gains if gain is not None]
    return math.fsum(known) / len(known) if known else None


def stuck_marks(rows: Sequence[str], stuck: Mapping[str, Mapping[MarkKind, str]]) -> list[Mark]:
    """Reasons why some of these rows may not decide any comparison. stuck: by row, as `why_stuck` says it."""
    return [Mark(row, kind, why) for row in rows for kind, why in stuck.get(row, {}).items()]


def late_marks(
    compared: Compared, outcome: ClaimOutcome, factors: Mapping[str, float], late_gains: Mapping[str, float]
) -> list[Mark]:
    """Reasons why rows that still learn may not decide a comparison with an outcome. Empty if there are none.

    Every row may not that alone changed the mean by as much as could undo the outcome. Otherwise several rows may not
    if they did so together, in a direction that undoes it.

    factors: those of the rows in the difference.
    """
    distance = compared.distance(outcome)
    free = _free_direction(compared, outcome)
    changes = {row: factor * gain for row, factor in factors.items() if (gain := late_gains.get(row, 0.0)) > 0}
    alone = [row for row, change in changes.items() if abs(change) >= distance]
    marked = alone
    if not alone:
        undoing = (
            [row for row, change in changes.items() if change * sign > 0] for sign in (1, -1) if sign * free <= 0
        )
        marked = next((rows for rows in undoing if rows and abs(sum(changes[row] for row in rows)) >= distance), [])
    is_of_zero = compared.relation == ">" and outcome != "no difference"
    decides = "the difference" if is_of_zero else "the distance of the difference from the margin"
    least = min((late_gains[row] for row in marked), default=0.0)
    gained = f"{least:.2g}{' or more' if len(marked) > 1 else ''} in the last tenth of the training"
    why = f"still gained {gained}, {'' if alone else 'together '}no less than {decides} ({distance:.2g})"
    return [Mark(row, "late gain", why) for row in marked]


def untuned_marks(
    compared: Compared, outcome: ClaimOutcome, factors: Mapping[str, float], untuned: Iterable[str]
) -> list[Mark]:
    """Reasons why rows with a learning rate that was not tuned may not decide a comparison with an outcome.

    A tuned rate could only improve such a row, so the row may decide by being better, but not by being worse or equally
    good.

    factors: those of the rows in the difference. untuned: the rows whose rate was not tuned.
    """
    free = _free_direction(compared, outcome)
    could_undo = [row for row in untuned if (factor := factors.get(row)) and factor * free <= 0]
    return [Mark(row, "untuned", "may do better at a tuned learning rate") for row in could_undo]


def _at_plateau(results: Sequence[Mapping[str, Any]]) -> str:
    """Says how many of the runs ended less than PLATEAU below the loss of predicting every token from its frequency.

    Such a model has not begun to use its context. Empty if there is no such run; runs without this loss are not
    counted.
    """
    gaps = [gap for result in results if (gap := _gap(result)) is not None]
    low = sum(gap < PLATEAU for gap in gaps)
    return f"ended less than {PLATEAU:g} nats below unigram_loss with {_seeds(low, len(gaps))}" if low else ""


def _unknown_gain(results: Sequence[Mapping[str, Any]]) -> str:
    """Says how many of the runs had no loss before the last tenth of their steps; empty if all had one."""
    gains = [result["late_gain"] for result in results]
    count = sum(gain is None or math.isnan(gain) for gain in gains)
    return f"had no evaluation before the last tenth of the steps with {_seeds(count, len(results))}" if count else ""


def _free_direction(compared: Compared, outcome: ClaimOutcome) -> float:
    """The sign of those changes of the left side's advantage that leave an outcome as it is; 0 if neither sign does.

    A row that gets better changes the advantage by its factor in the difference.
    """
    if outcome == "no difference" or (compared.relation, outcome) == ("~", "holds"):
        return 0.0
    if compared.relation == "~":
        return compared.sense * (compared.mean or 0.0)
    return 1.0 if outcome == "holds" else -1.0


def _seeds(count: int, of: int) -> str:
    return f"{count} of {of} seeds"


def _gap(result: Mapping[str, Any]) -> float | None:
    loss, unigram = result["validation_loss"], result["unigram_loss"]
    return unigram - loss if loss is not None and unigram is not None else None
