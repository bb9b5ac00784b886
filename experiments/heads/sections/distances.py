"""Which heads attend alike: distances between their weights, and a map of all heads."""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from experiments.heads import figures
from experiments.heads.hooks import has
from experiments.heads.measures import distance
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """Which heads attend alike; None without a softmax."""
    if not has(run.model, "weights"):
        return None
    between, names = distance.distances_of(run)
    points = distance.plane(between)
    layers = [layer for layer, _ in names]
    within = distance.within_layers(between, np.array(layers))
    same, other = distance.within_and_between(between, np.array(layers))
    pairs = [
        {"layer": a[0], "head": a[1], "other_layer": b[0], "other_head": b[1], "distance": float(between[i, j])}
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i < j
    ]
    plane = [
        {"layer": layer, "head": head, "x": float(x), "y": float(y)}
        for (layer, head), (x, y) in zip(names, points, strict=True)
    ]
    text = (
        "Jensen-Shannon divergence between the weights of two heads, averaged over held-out tokens: 0 for heads that "
        f"attend alike, ln 2 = 0.69 nats at most; drawn in two dimensions. {_trend(within, same, other)}"
    )
    drawn = figures.head_plane(points, layers, [head for _, head in names], within)
    depth = [{"layer": layer, "distance": value} for layer, value in within.items()]
    tables = {"distances": pairs, "plane": plane, "distance_within_layers": depth}
    return Section("Which heads attend alike", text, {"distances": drawn}, tables)


def _trend(within: dict[int, float], same: float, other: float) -> str:
    """Whether the heads of a layer are more alike than others, and how that changes with depth."""
    if len(within) < 2:
        return ""
    trend = float(spearmanr(list(within), list(within.values())).statistic)
    first, *_, last = within.values()
    falls = "falls" if trend < -0.5 else "rises" if trend > 0.5 else "neither falls nor rises"
    return (
        f"Heads of the same layer are {same:.3f} nats apart, of different layers {other:.3f}: those of a layer are "
        f"{'more' if same < other else 'not more'} alike; in BERT they are more alike (Clark et al.). "
        f"Within a layer the mean distance {falls} with depth: {first:.3f} in the first, {last:.3f} in the last "
        f"(rank correlation with depth {trend:+.2f}); in BERT it falls."
    )
