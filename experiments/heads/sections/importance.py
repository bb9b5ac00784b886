"""Which heads matter: their importance, and the loss when the least important ones are removed."""

from __future__ import annotations

import numpy as np
import torch

from experiments.heads import figures
from experiments.heads.hooks import value_heads
from experiments.heads.measures import importance, pruning
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section, by_layer
from experiments.heads.trained_run import TrainedRun
from experiments.objectives.objective import Batch
from experiments.training.evaluate import unigram_loss

RANDOM_ORDERS = 3
NOTHING = 0.05  # nats: a loss that grows by less is taken to be the same
POINTS = 12  # numbers of heads left at which the quality is measured


def make(run: TrainedRun, options: HeadsOptions) -> Section:
    """Which heads matter, and what is lost without the others."""
    model, batches = run.model, list(run.masked())
    gradient, relevance = importance.by_gradient(model, batches), importance.by_relevance(model, batches)
    scaled = importance.per_layer(gradient)
    total = sum(value_heads(model))
    counts = np.unique(np.linspace(0, total, POINTS + 1).round().astype(int)).tolist()
    orders = {"by gradient": [pruning.order(scaled)], "by relevance": [pruning.order(relevance)]}
    orders["in random order"] = [pruning.random_order(model, seed) for seed in range(RANDOM_ORDERS)]
    rows, curves = [], {}
    for name, several in orders.items():
        losses = np.array(
            [[pruning.loss_without(model, batches, each[:count]) for count in counts] for each in several]
        )
        curves[name] = ([total - count for count in counts], losses.mean(0).tolist())
        rows += [
            {"order": name, "draw": draw, "heads_left": total - count, "loss": float(losses[draw, index])}
            for draw in range(len(several))
            for index, count in enumerate(counts)
        ]
        if name == "in random order":
            spread = ([total - count for count in counts], losses.min(0).tolist(), losses.max(0).tolist())
    heads = [
        {"layer": layer, "head": head, "gradient": float(by_gradient), "gradient_in_layer": float(share),
         "relevance": float(by_relevance)}
        for layer, columns in enumerate(zip(gradient, scaled, relevance, strict=True), 1)
        for head, (by_gradient, share, by_relevance) in enumerate(zip(*columns, strict=True), 1)
    ]  # fmt: skip
    panels = {
        "gradient (nats per predicted token)": by_layer(heads, "gradient"),
        "gradient, l2 norm 1 in a layer": by_layer(heads, "gradient_in_layer"),
        "relevance, sum 1 in a layer": by_layer(heads, "relevance"),
    }
    whole = curves["by gradient"][1][0]
    free = {
        name: min(left for left, value in zip(*curve, strict=True) if value <= whole + NOTHING)
        for name, curve in curves.items()
    }
    text = (
        f"The heads of this section are the {total} whose outputs the layers pass on. Gradient: |d loss / d gate| "
        "(Michel et al.); relevance: the share of the likeliest token's score (Voita et al.). With all heads the loss "
        f"of these {run.sequences} sequences is {whole:.3f} nats"
        + (
            "; without any head it is within 0.05 of that: these heads do nothing yet."
            if curves["by gradient"][1][-1] <= whole + NOTHING
            else "; it is within 0.05 of that with "
            + ", ".join(f"{left} heads left ({name})" for name, left in free.items())
            + "."
        )
    )
    pictures = {
        "importance": figures.by_layer_and_head(panels),
        "pruning": figures.pruning_curve(curves, spread, _unigram_loss(run, batches)),
    }
    return Section("Which heads matter", text, pictures, {"importance": heads, "pruning": rows})


def _unigram_loss(run: TrainedRun, batches: list[Batch]) -> float:
    """The loss of single-token frequencies on the same targets."""
    unigram = run.dataset.unigram
    targets = np.bincount(torch.cat([batch.targets for batch in batches]).numpy(), minlength=len(unigram))
    return unigram_loss(targets, unigram, run.tokenizer.special)
