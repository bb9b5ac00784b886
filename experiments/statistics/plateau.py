"""Marks of runs that may not decide a claim, because they have learned too little for their loss to depend on
attention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.statistics.comparison import Compared, Mark, MarkKind

PLATEAU = 0.5  # nats that a run has to end below the loss of a unigram model


def at_plateau(results: Sequence[Mapping[str, Any]]) -> str:
    """Says how many of the runs ended less than PLATEAU below the loss of predicting every token from its frequency.

    Such a model has not begun to use its context. Empty if there is no such run; runs without this loss are not
    counted.
    """
    gaps = [gap for result in results if (gap := _gap(result)) is not None]
    low = sum(gap < PLATEAU for gap in gaps)
    return f"ended less than {PLATEAU:g} nats below unigram_loss with {_seeds(low, len(gaps))}" if low else ""


def stuck(results: Sequence[Mapping[str, Any]], diverged: int, count: int) -> dict[MarkKind, str]:
    """Why a row may not decide a claim: how many of its runs diverged, and how many ended at the plateau, if any did.

    results: those of the runs that ended with a loss. count: the number of all runs.
    """
    reasons: dict[MarkKind, str] = {}
    if diverged:
        reasons["diverged"] = f"diverged with {_seeds(diverged, count)}"
    if low := at_plateau(results):
        reasons["plateau"] = low
    return reasons


def mean_late_gain(results: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean over the runs of `late_gain`, in nats; None if no run records it."""
    gains = [gain for result in results if (gain := result["late_gain"]) is not None]
    return math.fsum(gains) / len(gains) if gains else None


def unknown_gain(results: Sequence[Mapping[str, Any]]) -> str:
    """Says how many of the runs were not evaluated before the last tenth of their steps; empty if all were."""
    count = sum(result["late_gain"] is None for result in results)
    return f"was not evaluated before the last tenth of its steps with {_seeds(count, len(results))}" if count else ""


def marks(
    compared: Compared, stuck: Mapping[str, Mapping[MarkKind, str]], late_gains: Mapping[str, float]
) -> list[Mark]:
    """Reasons why rows may not decide a comparison: they are stuck, or they still learn more than the difference.

    stuck: by row, as `stuck` says it. The difference is the mean if it decides which side is better, and otherwise at
    least the margin.
    """
    reasons = [Mark(row, kind, why) for row in compared.rows for kind, why in stuck.get(row, {}).items()]
    has_sign = compared.relation == ">" and compared.word() in ("holds", "reversed")
    decided = max(abs(compared.mean or 0.0), 0.0 if has_sign else compared.margin)
    unfinished = {row: gain for row in compared.rows if (gain := late_gains.get(row, 0.0)) >= decided}
    if unfinished:
        row = max(unfinished, key=lambda row: unfinished[row])
        late = f"still gained {unfinished[row]:.2g} at the end of its training"
        why = f"{late}, no less than the difference to be decided ({decided:.2g})"
        reasons.append(Mark(row, "late gain", why))
    return reasons


def _seeds(count: int, of: int) -> str:
    return f"{count} of {of} seeds"


def _gap(result: Mapping[str, Any]) -> float | None:
    loss, unigram = result["validation_loss"], result["unigram_loss"]
    return unigram - loss if loss is not None and unigram is not None else None
