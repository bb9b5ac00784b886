"""The evidence that a few paired differences give about their mean, of two kinds that differ in when one may look.

Anytime-valid evidence may be looked at after every seed, and seeds may be added until it decides. Student's t may be
looked at once, after a number of seeds that was written down before the first of them was trained.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from experiments.failures.missing_extra import check_installed

ALPHA = 0.05  # allowed probability of a wrong verdict
PRIOR_VARIANCE = 4.0  # g: variance of the effect in units of the standard deviation, under the alternative
MOST_SEEDS = 1000
ROUNDING = 1e-9  # relative; differences of equal shares, such as 100/277, differ by less, which is no spread

Interval = tuple[float, float]


class Evidence(Protocol):
    """An interval and p-values of a mean, which agree: a mean lies within the interval if its p-value is above
    alpha.
    """

    name: str

    def p_value(self, count: int, mean: float, deviation: float, null: float) -> float:
        """The two-sided p-value of "the mean is `null`".

        Args:
            count: the number of differences.
            mean: their mean.
            deviation: their sample standard deviation.
            null: the mean that is tested.
        """

    def half_width(self, count: int, deviation: float, alpha: float = ALPHA) -> float:
        """Half the width of the interval of level 1 - alpha around the mean; infinite if nothing is known."""


class Anytime:
    """The anytime-valid t test: a mixture over the effect, normal with variance g in units of the deviation.

    The prior of the standard deviation is right-Haar (Lai 1976; Hendriksen, de Heide and Gruenwald 2021; Wang and
    Ramdas, Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance). With n
    differences, nu = n - 1 and t = (mean - null) sqrt(n) / deviation,

        E = (1 + n g) ** -0.5 * ((1 + t**2 / nu) / (1 + t**2 / (nu (1 + n g)))) ** (n / 2)

    is at least 1 / alpha at any n with a chance of at most alpha where the null is true, and 1 / E is a p-value. Like
    Student's t, it assumes normal differences.
    """

    name = "anytime"

    def p_value(self, count: int, mean: float, deviation: float, null: float) -> float:
        """min(1, 1 / E); 1 for fewer than two differences."""
        distance = mean - null
        if count < 2 or distance == 0.0:
            return 1.0
        spread = count * PRIOR_VARIANCE
        if deviation == 0.0:
            # the limit: two or three equal differences are not enough for a verdict
            log_e = (count - 1) * math.log1p(spread) / 2
        else:
            squared = count * (distance / deviation) ** 2 / (count - 1)
            log_e = (count * (math.log1p(squared) - math.log1p(squared / (1 + spread))) - math.log1p(spread)) / 2
        return math.exp(min(0.0, -log_e))

    def half_width(self, count: int, deviation: float, alpha: float = ALPHA) -> float:
        """The distance from the mean at which E reaches 1 / alpha."""
        if count < 2:
            return math.inf
        spread = count * PRIOR_VARIANCE
        log_q = (math.log1p(spread) - 2 * math.log(alpha)) / count
        if log_q >= math.log1p(spread):
            return math.inf
        q = math.exp(log_q)
        return deviation * math.sqrt((count - 1) * (q - 1) / (1 - q / (1 + spread)) / count)


class Planned:
    """Student's t, for a number of seeds that was fixed beforehand."""

    name = "planned"

    def p_value(self, count: int, mean: float, deviation: float, null: float) -> float:
        """Two-sided, with count - 1 degrees of freedom; 1 for fewer than two differences, and for equal ones."""
        # equal differences, such as those of two stand-ins for diverged cells, say nothing about their spread
        if count < 2 or deviation == 0.0:
            return 1.0
        distance = abs(mean - null)
        return float(2 * _student().sf(distance / deviation * math.sqrt(count), count - 1))

    def half_width(self, count: int, deviation: float, alpha: float = ALPHA) -> float:
        """The quantile of t times the standard error."""
        if count < 2 or deviation == 0.0:
            return math.inf
        return float(_student().ppf(1 - alpha / 2, count - 1)) * deviation / math.sqrt(count)


class Waiting:
    """The evidence of a plan whose cells are not complete: nothing is known before they are."""

    name = "planned, not complete"

    def p_value(self, count: int, mean: float, deviation: float, null: float) -> float:
        """Always 1."""
        return 1.0

    def half_width(self, count: int, deviation: float, alpha: float = ALPHA) -> float:
        """Always infinite."""
        return math.inf


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation of one value or more.

    The deviation is 0 for a single value, and for values that differ by no more than ROUNDING of the largest.
    """
    count = len(values)
    if max(values) - min(values) <= ROUNDING * max(map(abs, values)):
        return values[0], 0.0
    mean = math.fsum(values) / count
    # much faster than numpy for a few values
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (count - 1))


def interval(evidence: Evidence, values: Sequence[float]) -> Interval | None:
    """The interval of the mean; None if it is infinite."""
    if not values:
        return None
    mean, deviation = mean_and_deviation(values)
    half = finite_half_width(evidence, len(values), deviation)
    return None if half is None else (mean - half, mean + half)


def finite_half_width(evidence: Evidence, count: int, deviation: float) -> float | None:
    """Half the width of the interval of the mean; None if it is infinite."""
    half = evidence.half_width(count, deviation)
    return half if math.isfinite(half) else None


def fewest_seeds(first: int, is_enough: Callable[[int], bool]) -> int | None:
    """The smallest number of seeds from `first` to MOST_SEEDS that is enough, as is every larger one; None if none
    is.
    """
    counts = range(first, MOST_SEEDS + 1)
    return next(iter(counts[bisect_left(counts, True, key=is_enough) :]), None)


def standard_error(values: Sequence[float]) -> float | None:
    """The standard error of the mean; None for fewer than two values, which have no spread."""
    return mean_and_deviation(values)[1] / math.sqrt(len(values)) if len(values) > 1 else None


def _student() -> Any:
    """Student's t, imported here because the anytime-valid interval does not need SciPy.

    Raises Mistake if SciPy is missing.
    """
    check_installed("tables", "a comparison of planned seeds", "scipy")
    from scipy.stats import t

    return t
