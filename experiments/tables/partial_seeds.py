"""Tables that are not complete: sentences about means and differences that cover only some of the seeds.

If two rows have different seeds, their means can order them one way and their paired difference the other way, because
some seeds are luckier than others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from experiments.tables.seeds import seeds_text, spans

SIGN = "(!)"  # marks a mean or a difference that covers only some of the seeds


def partial_mean(scores: Mapping[int, float], finished: Set[int]) -> str | None:
    """The seeds that a row's mean covers, as text; None if no row has finished other seeds, or if the row has none.

    Args:
        scores: the row's score by seed.
        finished: the seeds that some row of the table has finished.
    """
    return f"{seeds_text(scores)} of {spans(finished)}" if scores and set(scores) != finished else None


def partial_difference(baseline: str, scores: Mapping[int, float], of_baseline: Mapping[int, float]) -> str | None:
    """The seeds that a row's difference covers, with both means over these seeds, as text.

    None if both rows have the same seeds, or if one of them has none.

    Args:
        baseline: the name of the other row.
        scores: the row's score by seed.
        of_baseline: the baseline's score by seed.
    """
    if not scores or not of_baseline or set(scores) == set(of_baseline):
        return None
    shared = sorted(set(scores) & set(of_baseline))
    if not shared:
        return f"no seeds, because it shares none with {baseline}"
    ours, theirs = (float(np.mean([of_row[seed] for seed in shared])) for of_row in (scores, of_baseline))
    return f"{seeds_text(shared)}, shared with {baseline}: {ours:.4f} against {theirs:.4f}"
