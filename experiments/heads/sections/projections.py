"""The section on how heads talk: the projections that mix them, entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from experiments.heads import figures
from experiments.heads.measures import projections
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Findings, Section, over_parts
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section on which head talks to which; None for heads that do not mix."""
    matrices = projections.static_projections(run.model)
    if not any(matrices):
        return None
    found = over_parts(run.model, lambda part: _projections([matrices[place] for place in part.places]))
    text = _in_words([matrix for by_name in matrices for matrix in by_name.values()])
    return Section("How the heads talk", text, found.figures, found.tables)


def _projections(layers: list[dict[str, Tensor]]) -> Findings:
    matrices = [(layer, name, matrix) for layer, each in enumerate(layers, 1) for name, matrix in each.items()]
    entries = [
        {"layer": layer, "matrix": name, "before": i, "after": j, "value": value}
        for layer, name, matrix in matrices
        for i, row in enumerate(matrix.tolist(), 1)
        for j, value in enumerate(row, 1)
    ]
    summary: list[dict[str, Any]] = [
        {"layer": layer, "matrix": name, "from_identity": projections.distance_from_identity(matrix),
         "off_diagonal": projections.off_diagonal_share(matrix), "partners": projections.effective_partners(matrix)}
        for layer, name, matrix in matrices
    ]  # fmt: skip
    curves: dict[str, list[float | None]] = {}
    for row in summary:
        curves.setdefault(f"{row['matrix']} identity", []).append(row["from_identity"])
        curves.setdefault(f"{row['matrix']} diagonal", []).append(row["off_diagonal"])
    chances = {projections.random_off_diagonal(matrix) for _, _, matrix in matrices}
    arrays = [{name: matrix.numpy() for name, matrix in by_name.items()} for by_name in layers]
    pictures = {
        "projections": figures.projection_maps(arrays),
        "projection_distances": figures.projection_distances(curves, chances.pop() if len(chances) == 1 else None),
    }
    return Findings(pictures, {"projections": entries, "projection_distances": summary})


def _in_words(matrices: list[Tensor]) -> str:
    off_diagonal, chance, partners, reached = (
        float(np.mean([measure(matrix) for matrix in matrices]))
        for measure in (
            projections.off_diagonal_share, projections.random_off_diagonal, projections.effective_partners, _reached,
        )
    )  # fmt: skip
    columns = " or ".join(map(str, sorted({matrix.shape[1] for matrix in matrices})))
    # a random matrix reaches a third
    mixes = off_diagonal > chance / 2 and reached > 1 / 4
    return (
        "P_l mixes the logits, and P_w mixes the weights; blue entries subtract. On average "
        f"{off_diagonal:.0%} of the squared entries are off the diagonal ({chance:.0%} in a random matrix), and a head "
        f"effectively talks to {partners:.1f} of {columns} heads. The projections are "
        + ("neither diagonal nor sparse, like those of the paper." if mixes else "nearly diagonal or sparse.")
    )


def _reached(matrix: Tensor) -> float:
    """The share of the heads, besides one, that a head effectively talks to."""
    return (projections.effective_partners(matrix) - 1) / max(1, matrix.shape[1] - 1)
