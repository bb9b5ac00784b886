"""Which rows may not decide a claim: what a model needs to have learned before its loss says anything of attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from experiments.record.dotted import value_at
from experiments.tables.definition.table import Budget
from experiments.tables.sources.source import Finding

PLATEAU = 0.5  # nats under the loss of a unigram model that a cell has to come


@dataclass(frozen=True)
class Mark:
    """What is known of a row's training beside its score."""

    stuck: str = ""  # why the row may decide nothing; empty: it may
    late_gain: float | None = None  # nats that the last tenth of its steps gained, the mean over seeds


def mark(findings: Iterable[Finding], budget: Budget) -> Mark:
    """The mark of a row, from what its cells came to.

    A row is stuck if a cell diverged, or ended less than PLATEAU under the loss of predicting every token from its
    frequency: such a model has not begun to use its context. Rows of computed cells have no such loss, and no mark.
    """
    findings = list(findings)
    results = [finding.result for finding in findings if finding.state == "done"]
    diverged = sum(finding.state == "diverged" for finding in findings)
    gaps = [gap for result in results if (gap := _gap(result)) is not None]
    at_plateau = sum(gap < PLATEAU for gap in gaps)
    reasons = []
    if diverged:
        reasons.append(f"diverged with {_seeds(diverged, len(findings))}")
    if at_plateau:
        reasons.append(f"ended under {PLATEAU:g} nats below unigram_loss with {_seeds(at_plateau, len(gaps))}")
    gains = [gain for result in results if (gain := result.get("late_gain")) is not None]
    of_loss = budget.score == "validation_loss"
    return Mark(" and ".join(reasons), float(np.mean(gains)) if gains and of_loss else None)


def _gap(result: dict[str, object]) -> float | None:
    """How far the loss lies under the unigram model's, in nats."""
    loss, unigram = value_at(result, "validation_loss"), value_at(result, "unigram_loss")
    return unigram - loss if loss is not None and unigram is not None else None


def _seeds(count: int, of: int) -> str:
    return f"{count} of {of} seeds"
