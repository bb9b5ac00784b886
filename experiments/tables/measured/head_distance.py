"""How different the heads of a trained model are, within a layer and between layers (Clark et al. 2019, 1906.04341)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from experiments.heads.measures.distance import head_distances, within_and_between, within_layers
from experiments.heads.trained_run import TrainedRun
from experiments.settings.mistake import Mistake


def measure(run: TrainedRun, *, pairs: Literal["within", "between", "within_first", "within_last"]) -> dict[str, float]:
    """`distance`: the mean Jensen-Shannon distance of two heads, in nats: 0 for the same weights, ln 2 for disjoint.

    within: both in one layer. between: in different layers. within_first, within_last: both in one layer of the first
    or of the last half of them. Raises Mistake for a model that has no such pairs.
    """
    distances, layer_heads = head_distances(run)
    layers = np.array([layer for layer, _ in layer_heads])
    within, between = within_and_between(distances, layers)
    by_layer = within_layers(distances, layers)
    middle = layers.max() / 2
    means = {
        "within": within,
        "between": between,
        "within_first": _mean([mean for layer, mean in by_layer.items() if layer <= middle]),
        "within_last": _mean([mean for layer, mean in by_layer.items() if layer > middle]),
    }
    if pairs not in means:
        raise Mistake(f"measure.pairs={pairs}: must be one of {', '.join(means)}")
    if np.isnan(means[pairs]):
        raise Mistake(f"{run.name}: has no pairs of heads {pairs}", "give it two heads and two layers at least")
    return {"distance": means[pairs]}


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
