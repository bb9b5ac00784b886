"""The section on heads that attend alike: distances between their weights, and a map of all heads."""

from __future__ import annotations

import functools

import numpy as np
from scipy.stats import spearmanr

from experiments.heads import figures
from experiments.heads.hooks import has_stages
from experiments.heads.measures import distance
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part
from experiments.heads.section import Findings, Section, over_parts
from experiments.heads.trained_run import TrainedRun

ALIKE = 0.001  # nats: a smaller mean distance is none
TREND = 4  # layers that a rank correlation takes
IN_BERT = "In BERT, the heads of a layer are more alike than others, and the more so the deeper it is (Clark et al.)."


def make(run: TrainedRun, options: HeadsOptions) -> Section | None:
    """The section; None without a softmax."""
    if not has_stages(run.model, "weights"):
        return None
    found = over_parts(run.model, functools.partial(_distances, run))
    text = (
        "The distance of two heads is the Jensen-Shannon divergence between their weights, averaged over held-out "
        "tokens. It is 0 for heads that attend alike, and at most ln 2 = 0.69 nats. The picture shows the distances "
        f"in two dimensions. {found.text} {IN_BERT}"
    )
    return Section("Which heads attend alike", text, found.figures, found.tables)


def _distances(run: TrainedRun, part: Part) -> Findings:
    head_distances, layer_heads = distance.head_distances(run, part)
    points = distance.embed_in_plane(head_distances)
    layers = [layer for layer, _ in layer_heads]
    within = distance.within_layers(head_distances, np.array(layers))
    distances = [
        {"layer": layer, "head": head, "other_layer": other_layer, "other_head": other_head,
         "distance": float(head_distances[i, j])}
        for i, (layer, head) in enumerate(layer_heads)
        for j, (other_layer, other_head) in enumerate(layer_heads)
        if i < j
    ]  # fmt: skip
    plane = [
        {"layer": layer, "head": head, "x": float(x), "y": float(y)}
        for (layer, head), (x, y) in zip(layer_heads, points, strict=True)
    ]
    by_layer = [{"layer": layer, "distance": value} for layer, value in within.items()]
    return Findings(
        {"distances": figures.head_plane(points, layers, [head for _, head in layer_heads], within)},
        {"distances": distances, "plane": plane, "distance_within_layers": by_layer},
        trend_with_depth(within, *distance.within_and_between(head_distances, np.array(layers))),
    )


def trend_with_depth(within: dict[int, float], within_mean: float, between_mean: float) -> str:
    """How far the heads of a layer are from each other and from others, and how that changes with depth."""
    if len(within) < 2:
        return ""
    if max(within_mean, between_mean) < ALIKE:
        return f"All heads attend alike: they are less than {ALIKE} nats apart on average."
    means = (
        f"Heads of the same layer are {within_mean:.3f} nats apart, and heads of different layers {between_mean:.3f}."
    )
    distances = list(within.values())
    first, last = distances[0], distances[-1]
    if len(within) < TREND:
        return f"{means} The distance is {first:.3f} within the first layer, and {last:.3f} within the last."
    # not defined for equal distances, as of heads that are copies of each other
    trend = float(spearmanr(list(within), distances).statistic) if len(set(distances)) > 1 else 0.0
    falls = "falls" if trend < -0.5 else "rises" if trend > 0.5 else "neither falls nor rises"
    return (
        f"{means} Within a layer the mean distance {falls} with depth, from {first:.3f} in the first to {last:.3f} in "
        f"the last (rank correlation with depth {trend:+.2f})."
    )
