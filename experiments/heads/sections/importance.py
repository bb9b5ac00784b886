"""The section on important heads: their importance, and the loss when the least important ones are removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from experiments.heads import figures
from experiments.heads.hooks import value_heads
from experiments.heads.measures import importance, pruning
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import parts_of
from experiments.heads.section import Section, layer_head_matrix
from experiments.heads.trained_run import TrainedRun
from experiments.measure.quality import unigram_loss
from experiments.model.transformer import Transformer
from experiments.objectives.objective import Batch

RANDOM_ORDERS = 3
NEGLIGIBLE_LOSS = 0.05  # nats; a smaller growth of the loss counts as none
PRUNING_POINTS = 12  # numbers of remaining heads at which the loss is measured


def make(run: TrainedRun, options: HeadsOptions) -> Section:
    """The section on important heads, and on the loss without the others."""
    model, batches = run.model, list(run.masked_batches())
    gradient, relevance = importance.by_gradient(model, batches), importance.by_relevance(model, batches)
    normalized = importance.normalized_by_layer(gradient)
    total = sum(value_heads(model))
    removed_counts = np.unique(np.linspace(0, total, PRUNING_POINTS + 1).round().astype(int)).tolist()
    orders = {"by gradient": [pruning.removal_order(normalized)], "by relevance": [pruning.removal_order(relevance)]}
    orders["in random order"] = [pruning.random_order(model, seed) for seed in range(RANDOM_ORDERS)]
    rows, curves = [], {}
    for name, draws in orders.items():
        losses = np.array(
            [
                [pruning.loss_without_heads(model, batches, order[:removed]) for removed in removed_counts]
                for order in draws
            ]
        )
        curves[name] = ([total - removed for removed in removed_counts], losses.mean(0).tolist())
        rows += [
            {"order": name, "draw": draw, "heads_left": total - removed, "loss": float(losses[draw, index])}
            for draw in range(len(draws))
            for index, removed in enumerate(removed_counts)
        ]
        if name == "in random order":
            spread = ([total - removed for removed in removed_counts], losses.min(0).tolist(), losses.max(0).tolist())
    full_loss = curves["by gradient"][1][0]
    ablation = [
        part.row | {"layer": layer, "head": head + 1, "loss": loss, "increase": loss - full_loss}
        for part in parts_of(model)
        for layer, place in enumerate(part.places, 1)
        for head, loss in enumerate(pruning.loss_without_each(model, batches, place))
    ]
    heads = [
        part.row | {"layer": layer, "head": head, "gradient": float(by_gradient), "gradient_in_layer": float(share),
                    "relevance": float(by_relevance)}
        for part in parts_of(model)
        for layer, columns in enumerate([(gradient[i], normalized[i], relevance[i]) for i in part.places], 1)
        for head, (by_gradient, share, by_relevance) in enumerate(zip(*columns, strict=True), 1)
    ]  # fmt: skip
    heads_needed = {
        name: min(heads_left for heads_left, loss in zip(*curve, strict=True) if loss <= full_loss + NEGLIGIBLE_LOSS)
        for name, curve in curves.items()
    }
    text = (
        f"The heads of this section are the {total} whose outputs the layers pass on. The gradient of a head is "
        "|d loss / d gate| (Michel et al.), and its relevance is its share of the likeliest token's score (Voita et "
        f"al.). With all heads the loss of these {run.sequences} sequences is {full_loss:.3f} nats"
        + (
            "; without any head it is at most 0.05 higher, so these heads do nothing yet."
            if curves["by gradient"][1][-1] <= full_loss + NEGLIGIBLE_LOSS
            else "; it is at most 0.05 higher with "
            + ", ".join(f"{heads_left} heads left ({name})" for name, heads_left in heads_needed.items())
            + "."
        )
        + f" {_of_ablation(ablation)}"
    )
    pictures = _heatmaps(model, heads, ablation) | {
        "pruning": figures.pruning_curve(curves, spread, _unigram_loss(run, batches)),
    }
    return Section("Which heads matter", text, pictures, {"importance": heads, "ablation": ablation, "pruning": rows})


def _of_ablation(ablation: list[dict[str, Any]]) -> str:
    """How much a single head matters while all others are there."""
    increases = [row["increase"] for row in ablation]
    needed = sum(increase > NEGLIGIBLE_LOSS for increase in increases)
    return (
        f"Without a single head, while all others stay, the loss changes by {min(increases):+.3f} to "
        f"{max(increases):+.3f} nats; it rises by more than {NEGLIGIBLE_LOSS} for {needed} of {len(increases)} heads."
    )


def _heatmaps(model: Transformer, heads: list[dict[str, Any]], ablation: list[dict[str, Any]]) -> dict[str, Figure]:
    """The importances of each part, by the name of the file."""
    pictures = {}
    for part in parts_of(model):
        rows = part.rows_of(heads)
        panels = {
            "gradient (nats per predicted token)": layer_head_matrix(rows, "gradient"),
            "gradient, l2 norm 1 in a layer": layer_head_matrix(rows, "gradient_in_layer"),
            "relevance, sum 1 in a layer": layer_head_matrix(rows, "relevance"),
            "rise of the loss without the head (nats)": layer_head_matrix(part.rows_of(ablation), "increase"),
        }
        pictures[part.of("importance")] = figures.titled(figures.layer_head_heatmaps(panels), part.title)
    return pictures


def _unigram_loss(run: TrainedRun, batches: list[Batch]) -> float:
    """The loss of single-token frequencies on the same targets."""
    unigram = run.dataset.unigram
    targets = np.bincount(torch.cat([batch.targets for batch in batches]).numpy(), minlength=len(unigram))
    return unigram_loss(targets, unigram, run.tokenizer.special)
