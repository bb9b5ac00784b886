"""Holm's correction for several verdicts at once (Holm 1979)."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.statistics.evidence import ALPHA


def holm_levels(p_values: Sequence[float]) -> list[float]:
    """The level that Holm's procedure (1979) leaves for each hypothesis, in the given order; 0 for one that is kept.

    The smallest p-value is tested at ALPHA / m, the next one at ALPHA / (m - 1), and so on until one is kept. The
    probability of any wrong rejection stays below ALPHA, at every look if the p-values are anytime-valid.
    """
    levels = [0.0] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        level = ALPHA / (len(p_values) - rank)
        if p_values[index] > level:
            break
        levels[index] = level
    return levels


def next_level(levels: Sequence[float]) -> float:
    """The level that the smallest p-value of the hypotheses that are kept would have to reach, given `holm_levels`."""
    return ALPHA / max(1, levels.count(0.0))
