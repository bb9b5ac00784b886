"""What training makes of P_l and P_w: diagonal or mixing (Shazeer et al. 2020, 2003.02436, figure 1)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from experiments.heads.measures.projections import effective_partners, off_diagonal_share, static_projections
from experiments.heads.trained_run import TrainedRun
from experiments.settings.mistake import Mistake

NAMES = {"logits": "P_l", "weights": "P_w"}


def measure(run: TrainedRun, *, projection: Literal["logits", "weights"]) -> dict[str, float]:
    """`off_diagonal`: the share of the squared entries off the diagonal; `partners`: heads that a head mixes with.

    Both are means over the layers. Raises Mistake for a model whose heads do not mix.
    """
    if projection not in NAMES:
        raise Mistake(f"measure.projection={projection}: must be one of {', '.join(NAMES)}")
    matrices = [
        of_layer[NAMES[projection]] for of_layer in static_projections(run.model) if NAMES[projection] in of_layer
    ]
    if not matrices:
        raise Mistake(f"{run.name}: has no {NAMES[projection]}", "train it with variant=talking_heads")
    return {
        "off_diagonal": float(np.mean([off_diagonal_share(matrix) for matrix in matrices])),
        "partners": float(np.mean([effective_partners(matrix) for matrix in matrices])),
    }
