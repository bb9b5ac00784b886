"""The section on how heads talk: the projections that mix them, entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.heads import figures
from experiments.heads.measures import projections
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import parts_of
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section on which head talks to which; None for heads that do not mix."""
    matrices = projections.static_projections(run.model)
    if not any(matrices):
        return None
    parts = parts_of(run.model)
    entries = [
        part.row | {"layer": layer, "matrix": name, "before": i, "after": j, "value": value}
        for part in parts
        for layer, by_name in enumerate([matrices[place] for place in part.places], 1)
        for name, matrix in by_name.items()
        for i, row in enumerate(matrix.tolist(), 1)
        for j, value in enumerate(row, 1)
    ]
    summary: list[dict[str, Any]] = [
        part.row | {"layer": layer, "matrix": name, "from_identity": projections.distance_from_identity(matrix),
         "off_diagonal": projections.off_diagonal_share(matrix), "partners": projections.effective_partners(matrix)}
        for part in parts
        for layer, by_name in enumerate([matrices[place] for place in part.places], 1)
        for name, matrix in by_name.items()
    ]  # fmt: skip
    columns = next(iter(matrices[0].values())).shape[1]
    chance = 1 - 1 / columns
    off_diagonal, partners = (float(np.mean([row[name] for row in summary])) for name in ("off_diagonal", "partners"))
    text = (
        "P_l mixes the logits, and P_w mixes the weights; blue entries subtract. On average "
        f"{off_diagonal:.0%} of the squared entries are off the diagonal ({chance:.0%} in a random matrix), and a head "
        f"effectively talks to {partners:.1f} of {columns} heads. The projections are "
        + (
            "neither diagonal nor sparse, like those of the paper."
            if off_diagonal > 0.5 and partners > columns / 4
            else "nearly diagonal or sparse."
        )
    )
    pictures = {}
    for part in parts:
        curves: dict[str, list[float | None]] = {}
        for row in part.rows_of(summary):
            curves.setdefault(f"{row['matrix']} identity", []).append(row["from_identity"])
            curves.setdefault(f"{row['matrix']} diagonal", []).append(row["off_diagonal"])
        layers = [{name: matrix.numpy() for name, matrix in matrices[place].items()} for place in part.places]
        pictures[part.of("projections")] = figures.titled(figures.projection_maps(layers), part.title)
        distances = figures.projection_distances(curves, chance)
        pictures[part.of("projection_distances")] = figures.titled(distances, part.title)
    return Section("How the heads talk", text, pictures, {"projections": entries, "projection_distances": summary})
