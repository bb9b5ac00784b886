"""How different the heads of a trained model are, within a layer and between layers (Clark et al. 2019, 1906.04341)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from experiments.failures.failure import Mistake
from experiments.heads.measures.distance import head_distances, within_and_between, within_layers
from experiments.heads.trained_run import TrainedRun

TOKENS = 1024  # of held-out text, at most; at least one sequence


def measure(run: TrainedRun, *, pairs: Literal["within", "between", "within_first", "within_last"]) -> dict[str, float]:
    """Measure `distance`, the mean Jensen-Shannon divergence of the weights of two heads, in nats.

    It is 0 for equal weights and ln 2 for disjoint ones.

    Args:
        run: the trained run whose heads are compared.
        pairs: which pairs of heads are averaged over. within: both heads in the same layer. between: in different
            layers. within_first and within_last: both in the same layer, in the first or the last half of the layers.

    Raises Mistake if the model has no such pairs.
    """
    sequences = min(run.sequences, max(1, TOKENS // run.settings.length))
    distances, layer_heads = head_distances(replace(run, sequences=sequences))
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
