"""Whether trained P_l and P_w stay diagonal or mix heads (Shazeer et al. 2020, 2003.02436, figure 1)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from experiments.failures.failure import Mistake
from experiments.heads.measures.projections import effective_partners, off_diagonal_share, static_projections
from experiments.heads.trained_run import TrainedRun

NAMES = {"logits": "P_l", "weights": "P_w"}


def measure(run: TrainedRun, *, projection: Literal["logits", "weights"]) -> dict[str, float]:
    """Measure how much a projection mixes heads, as means over the layers.

    `off_diagonal` is the share of the sum of squares that is off the diagonal, 0 to 1. `partners` is the effective
    number of heads that a head mixes with.

    Args:
        run: the trained run.
        projection: logits for P_l, weights for P_w.

    Raises Mistake if the model has no such projection.
    """
    if projection not in NAMES:
        raise Mistake(f"measure.projection={projection}: must be one of {', '.join(NAMES)}")
    matrices = [
        of_layer[NAMES[projection]] for of_layer in static_projections(run.model) if NAMES[projection] in of_layer
    ]
    if not matrices:
        raise Mistake(
            f"{run.name}: has no {NAMES[projection]}", "train it with a variant that mixes heads, such as talking_heads"
        )
    return {
        "off_diagonal": float(np.mean([off_diagonal_share(matrix) for matrix in matrices])),
        "partners": float(np.mean([effective_partners(matrix) for matrix in matrices])),
    }
