"""What a few paired differences say: intervals, tests, equivalence, and how many more would decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
FEW = 20  # with fewer values a bootstrap stands beside the t interval
RESAMPLES = 9999
MOST_SEEDS = 1000

Interval = tuple[float, float]


@dataclass(frozen=True)
class Test:
    """One-sided p-values of a statement and of its contrary; neither small: nothing is known."""

    __test__ = False  # no test case of pytest's

    holds: float
    fails: float


NOTHING = Test(1.0, 1.0)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; None for one value, which has no spread."""
    return float(stats.sem(values)) if len(values) > 1 else None


def t_interval(values: Sequence[float]) -> Interval | None:
    """95% interval of the mean, by Student's t; None for one value."""
    error = standard_error(values)
    if error is None:
        return None
    mean, half = float(np.mean(values)), float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return mean - half, mean + half


def bootstrap_interval(values: Sequence[float]) -> Interval | None:
    """95% percentile interval of the mean over resamples, the same for the same values; None for one value.

    It can't reach beyond the smallest and the largest value: with three it is far too narrow, and decides nothing.
    """
    if len(values) < 2:
        return None
    interval = stats.bootstrap(
        (values,), np.mean, confidence_level=LEVEL, method="percentile", n_resamples=RESAMPLES,
        rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return float(interval.low), float(interval.high)


def p_greater(values: Sequence[float], than: float) -> float:
    """One-sided p-value of "the mean is greater than `than`", by the t test; 1 for one value."""
    error = standard_error(values)
    if error is None:
        return 1.0
    distance = float(np.mean(values)) - than
    if error == 0.0:
        return 0.0 if distance > 0 else 1.0
    return float(stats.t.sf(distance / error, len(values) - 1))


def positive(values: Sequence[float]) -> Test:
    """Whether the mean is greater than 0, or less."""
    return Test(p_greater(values, 0.0), p_greater([-value for value in values], 0.0))


def equivalent(values: Sequence[float], margin: float) -> Test:
    """Whether the mean lies within +-margin (two one-sided tests, Schuirmann 1987), or outside of it.

    Not significant does not mean equal: only an interval within the margin shows that.
    """
    negated = [-value for value in values]
    within = max(p_greater(values, -margin), p_greater(negated, -margin))
    outside = min(p_greater(values, margin), p_greater(negated, margin))
    return Test(within, min(1.0, 2 * outside))


def together(tests: Sequence[Test]) -> Test:
    """Test of several statements: all hold (intersection-union: the worst p-value), or one fails (Bonferroni)."""
    if not tests:
        return NOTHING
    return Test(max(test.holds for test in tests), min(1.0, len(tests) * min(test.fails for test in tests)))


def two_sided(test: Test) -> float:
    """The p-value of either outcome."""
    return min(1.0, 2 * min(test.holds, test.fails))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the order given: p <= 0.05 keeps all errors together below 5%."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def seeds_to_show(mean: float, deviation: float, level: float) -> int | None:
    """Seeds after which a mean and a standard deviation like these would have a one-sided p-value <= level.

    The mean is the distance from what is to be excluded. None: not with MOST_SEEDS.
    """
    if mean <= 0 or not math.isfinite(mean):
        return None
    for count in range(2, MOST_SEEDS + 1):
        if deviation == 0 or stats.t.sf(mean / deviation * math.sqrt(count), count - 1) <= level:
            return count
    return None
