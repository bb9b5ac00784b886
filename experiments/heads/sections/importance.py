"""The section on important heads: their importance, and the loss when the least important ones are removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.heads import figures
from experiments.heads.hooks import value_heads
from experiments.heads.measures import importance, pruning
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part
from experiments.heads.section import Findings, Section, layer_head_matrix, over_parts
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
    gradient, relevance = importance.of_run_by_gradient(run), importance.by_relevance(model, batches)
    normalized = importance.normalized_by_layer(gradient)
    total = sum(value_heads(model))
    removed_counts = np.unique(np.linspace(0, total, PRUNING_POINTS + 1).round().astype(int)).tolist()
    orders = {"by gradient": [pruning.removal_order(normalized)], "by relevance": [pruning.removal_order(relevance)]}
    orders["in random order"] = [pruning.random_order(model, seed) for seed in range(RANDOM_ORDERS)]
    rows = [
        {"order": name, "draw": draw, "heads_left": total - removed,
         "loss": pruning.loss_without_heads(model, batches, order[:removed])}
        for name, draws in orders.items()
        for draw, order in enumerate(draws)
        for removed in removed_counts
    ]  # fmt: skip
    heads_left = [total - removed for removed in removed_counts]
    losses = {
        name: np.array([row["loss"] for row in rows if row["order"] == name]).reshape(len(draws), -1)
        for name, draws in orders.items()
    }
    curves = {name: (heads_left, each.mean(0).tolist()) for name, each in losses.items()}
    random = losses["in random order"]
    spread = (heads_left, random.min(0).tolist(), random.max(0).tolist())
    full_loss = curves["by gradient"][1][0]
    importances = {"gradient": gradient, "gradient_in_layer": normalized, "relevance": relevance}
    found = over_parts(model, lambda part: _single_heads(model, batches, part, importances, full_loss))
    negligible = full_loss + NEGLIGIBLE_LOSS
    heads_needed = [
        f"{min(left for left, loss in zip(*curve, strict=True) if loss <= negligible)} heads left ({name})"
        for name, curve in curves.items()
    ]
    text = (
        f"The heads of this section are the {total} whose outputs the layers pass on. The gradient of a head is "
        "|d loss / d gate| (Michel et al.), and its relevance is its share of the likeliest token's score (Voita et "
        f"al.). With all heads the loss of these {run.sequences} sequences is {full_loss:.3f} nats"
        + (
            f"; without any head it is at most {NEGLIGIBLE_LOSS} higher, so these heads do nothing yet."
            if curves["by gradient"][1][-1] <= negligible
            else f"; it is at most {NEGLIGIBLE_LOSS} higher with {', '.join(heads_needed)}."
        )
        + f" {_of_ablation(found.tables['ablation'])}"
    )
    pictures = found.figures | {"pruning": figures.pruning_curve(curves, spread, _unigram_loss(run, batches))}
    return Section("Which heads matter", text, pictures, found.tables | {"pruning": rows})


def _of_ablation(ablation: list[dict[str, Any]]) -> str:
    """How much a single head matters while all others are there."""
    increases = [row["increase"] for row in ablation]
    needed = sum(increase > NEGLIGIBLE_LOSS for increase in increases)
    return (
        f"Without a single head, while all others stay, the loss changes by {min(increases):+.3f} to "
        f"{max(increases):+.3f} nats; it rises by more than {NEGLIGIBLE_LOSS} for {needed} of {len(increases)} heads."
    )


def _single_heads(
    model: Transformer, batches: list[Batch], part: Part, importances: Mapping[str, list[Tensor]], full_loss: float
) -> Findings:
    """The importances of each head of a part, and the loss without it."""
    heads = [
        {"layer": layer, "head": head + 1} | {name: float(values[place][head]) for name, values in importances.items()}
        for layer, place in enumerate(part.places, 1)
        for head in range(value_heads(model)[place])
    ]
    ablation = [
        {"layer": layer, "head": head, "loss": loss, "increase": loss - full_loss}
        for layer, place in enumerate(part.places, 1)
        for head, loss in enumerate(pruning.loss_without_each(model, batches, place), 1)
    ]
    panels = {
        "gradient (nats per predicted token)": layer_head_matrix(heads, "gradient"),
        "gradient, l2 norm 1 in a layer": layer_head_matrix(heads, "gradient_in_layer"),
        "relevance, sum 1 in a layer": layer_head_matrix(heads, "relevance"),
        "rise of the loss without the head (nats)": layer_head_matrix(ablation, "increase"),
    }
    return Findings({"importance": figures.layer_head_heatmaps(panels)}, {"importance": heads, "ablation": ablation})


def _unigram_loss(run: TrainedRun, batches: list[Batch]) -> float:
    """The loss of single-token frequencies on the same targets."""
    unigram = run.dataset.unigram
    targets = np.bincount(torch.cat([batch.targets for batch in batches]).numpy(), minlength=len(unigram))
    return unigram_loss(targets, unigram, run.tokenizer.special)
