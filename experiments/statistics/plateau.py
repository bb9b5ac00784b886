"""What a run has to have learned before its loss says anything of attention: marks of those that may decide nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.statistics.comparison import Compared

PLATEAU = 0.5  # nats under the loss of a unigram model that a run has to come


def at_plateau(results: Sequence[Mapping[str, Any]]) -> str:
    """Say how many of the runs ended less than PLATEAU under the loss of predicting every token from its frequency:
    such a model has not begun to use its context. Empty where none did; runs without such a loss don't count.
    """
    gaps = [gap for result in results if (gap := _gap(result)) is not None]
    stuck = sum(gap < PLATEAU for gap in gaps)
    return f"ended under {PLATEAU:g} nats below unigram_loss with {seeds(stuck, len(gaps))}" if stuck else ""


def late_gain(results: Sequence[Mapping[str, Any]]) -> float | None:
    """Nats that the last tenth of the steps gained, the mean over the runs; None where none says."""
    gains = [gain for result in results if (gain := result.get("late_gain")) is not None]
    return float(np.mean(gains)) if gains else None


def marks(compared: Compared, stuck: Mapping[str, str], late_gains: Mapping[str, float]) -> list[str]:
    """Why rows may not decide a comparison: they are at the plateau, or still learn more than it is about."""
    found = [f"{row} {stuck[row]}" for row in compared.rows if row in stuck]
    decided = max(abs(compared.mean or 0.0), compared.margin)
    unfinished = {row: gain for row in compared.rows if (gain := late_gains.get(row, 0.0)) >= decided}
    if unfinished:
        row = max(unfinished, key=lambda row: unfinished[row])
        found.append(f"{row} gained {unfinished[row]:.2g} in the last tenth of its training, and {decided:.2g} decides")
    return found


def seeds(count: int, of: int) -> str:
    """Some of the seeds, in words."""
    return f"{count} of {of} seeds"


def _gap(result: Mapping[str, Any]) -> float | None:
    loss, unigram = result.get("validation_loss"), result.get("unigram_loss")
    return unigram - loss if loss is not None and unigram is not None else None
