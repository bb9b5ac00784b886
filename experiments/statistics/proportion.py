"""How well a proportion is known from counts."""

from __future__ import annotations

import math
from statistics import NormalDist

from experiments.statistics.evidence import ALPHA, Interval


def wilson_interval(count: int, total: int, alpha: float = ALPHA) -> Interval:
    """The interval of level 1 - alpha of a proportion of which `count` of `total` independent cases were seen.

    Its ends are the proportions p with |count / total - p| = z sqrt(p (1 - p) / total) (Wilson 1927, Probable
    inference, the law of succession, and statistical inference), so it stays within 0 and 1.
    """
    z = NormalDist().inv_cdf(1 - alpha / 2)
    share, shrunk = count / total, 1 + z**2 / total
    middle = (share + z**2 / (2 * total)) / shrunk
    half = z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2) / shrunk
    return max(0.0, middle - half), min(1.0, middle + half)
