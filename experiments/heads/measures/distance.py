"""Distances between heads, and a map of all heads (Clark et al. 2019, 1906.04341, section 6)."""

# G heads of all layers, R rows (queries of all sequences), M memory

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.heads.hooks import read_stages
from experiments.heads.measures.profile import entropy
from experiments.heads.parts import Part, parts_of
from experiments.heads.trained_run import TrainedRun

QUERIES_AT_ONCE = 1024  # whose divergences are in memory at once


def jensen_shannon(weights_GRM: Tensor) -> Tensor:
    """[G, G]: the Jensen-Shannon divergence in nats, summed over rows: 0 for equal weights, ln 2 for disjoint ones."""
    entropies = entropy(weights_GRM)
    distances = torch.zeros(len(entropies), len(entropies), dtype=torch.float64)
    for head, weights in enumerate(weights_GRM[:-1]):
        others = weights_GRM[head + 1 :]
        between = entropy((weights + others) / 2) - (entropies[head] + entropies[head + 1 :]) / 2
        distances[head, head + 1 :] = between.double().sum(-1).clamp(min=0)
    return distances + distances.T


def head_distances(run: TrainedRun, part: Part | None = None) -> tuple[npt.NDArray[np.float64], list[tuple[int, int]]]:
    """Distances [G, G] between all softmax heads of a part on held-out text, and (layer, head) of each, counted
    from 1.

    The paper's formula is the sum over tokens, its caption the mean. This is the mean, which does not depend on the
    amount of text.
    """
    part = part or parts_of(run.model)[0]
    attentions = [run.model.attentions[place] for place in part.places]
    layer_heads = [(i, head) for i, each in enumerate(attentions, 1) for head in range(1, each.softmax_heads + 1)]
    total, queries = torch.zeros(len(layer_heads), len(layer_heads), dtype=torch.float64), 0
    for inputs in run.text_batches():
        content = ~run.is_special(inputs[part.queries])
        stages = read_stages(run.model, inputs, "weights")
        layers = [stages[place]["weights"].transpose(0, 1)[:, content] for place in part.places]
        for weights_GRM in torch.cat(layers).split(QUERIES_AT_ONCE, dim=1):
            total += jensen_shannon(weights_GRM)
            queries += weights_GRM.shape[1]
    return (total / queries).numpy(), layer_heads


def within_layers(distances: npt.NDArray[np.float64], layers: npt.NDArray[np.int64]) -> dict[int, float]:
    """The mean distance between two heads of a layer, by layer; layers with one head are left out."""
    means = {}
    for layer in np.unique(layers).tolist():
        of_layer = distances[np.ix_(layers == layer, layers == layer)]
        if len(of_layer) > 1:
            means[layer] = float(of_layer[np.triu_indices(len(of_layer), 1)].mean())
    return means


def within_and_between(distances: npt.NDArray[np.float64], layers: npt.NDArray[np.int64]) -> tuple[float, float]:
    """The mean distance between two heads of the same layer, and of different layers; nan if there are none."""
    first, second = np.triu_indices(len(layers), 1)
    same = layers[first] == layers[second]
    pairs = distances[first, second]
    within, between = (float(part.mean()) if len(part) else np.nan for part in (pairs[same], pairs[~same]))
    return within, between


def embed_in_plane(distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[G, 2]: points whose distances approximate `distances` as well as possible (metric MDS by SMACOF)."""
    if not distances.any():
        # SMACOF would divide by zero
        return np.zeros((len(distances), 2))
    from sklearn.manifold import smacof

    # the function that scikit-learn's MDS calls: the names of the class's arguments differ between versions
    points, _ = smacof(distances, n_components=2, n_init=8, random_state=0, normalized_stress=False)
    return np.asarray(points)
