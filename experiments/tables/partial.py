"""Tables that are not complete: which means and differences are over some of the seeds alone, in words.

Two rows of different seeds have means that can order them one way, and a paired difference that orders them the other
way, as some seeds are luckier than others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from experiments.tables.seeds import seeds_text, spans

SIGN = "(!)"  # beside a mean or a difference that is over some of the seeds


def partial_mean(scores: Mapping[int, float], finished: Set[int]) -> str | None:
    """The seeds of a row's mean; None where these are all that any row has finished, or none.

    Args:
        scores: the row's score by seed.
        finished: the seeds that some row of the table has finished.
    """
    return f"{seeds_text(scores)} of {spans(finished)}" if scores and set(scores) != finished else None


def partial_difference(baseline: str, scores: Mapping[int, float], of_baseline: Mapping[int, float]) -> str | None:
    """The seeds of a row's difference, both means over them; None if the rows have the same seeds, or one has none.

    Args:
        baseline: the name of the other row.
        scores: the row's score by seed.
        of_baseline: that of the baseline.
    """
    if not scores or not of_baseline or set(scores) == set(of_baseline):
        return None
    shared = sorted(set(scores) & set(of_baseline))
    if not shared:
        return f"none, as it shares no seed with {baseline}"
    ours, theirs = (float(np.mean([of_row[seed] for seed in shared])) for of_row in (scores, of_baseline))
    return f"{seeds_text(shared)}, shared with {baseline}: {ours:.4f} against {theirs:.4f}"
