"""The sections about what the heads are good for: importance and pruning, gates, mixing, rank, where they start."""

# L layers, B batch, N queries, M memory, H heads

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from experiments.heads import figures
from experiments.heads.hooks import read, value_heads
from experiments.heads.measures import equal_start as equal
from experiments.heads.measures import importance, projections, pruning, rank
from experiments.heads.measures import l0_gates as gates
from experiments.heads.section import Options, Section, by_layer
from experiments.heads.trained_run import Subject
from experiments.training.evaluate import unigram_loss

RANDOM_ORDERS = 3
POINTS = 12  # numbers of heads left at which the quality is measured
RANK_SEQUENCES = 8


def important(subject: Subject, options: Options) -> Section:
    """Which heads matter, and what is lost without the others."""
    model, batches = subject.model, list(subject.masked())
    gradient, relevance = importance.by_gradient(model, batches), importance.by_relevance(model, batches)
    scaled = importance.per_layer(gradient)
    total = sum(value_heads(model))
    counts = np.unique(np.linspace(0, total, POINTS + 1).round().astype(int)).tolist()
    orders = {"by gradient": [pruning.order(scaled)], "by relevance": [pruning.order(relevance)]}
    orders["in random order"] = [pruning.random_order(model, seed) for seed in range(RANDOM_ORDERS)]
    rows, curves = [], {}
    for name, several in orders.items():
        losses = np.array([[_loss(model, batches, each[:count]) for count in counts] for each in several])
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
        name: min(left for left, value in zip(*curve, strict=True) if value <= whole + 0.05)
        for name, curve in curves.items()
    }
    text = (
        f"A head here is one of the {total} whose outputs the layers pass on. Gradient: |d loss / d gate| (Michel et "
        "al.); relevance: the share of the likeliest token's score (Voita et al.). With all heads the loss is "
        f"{whole:.3f} nats; it is within 0.05 of that with "
        + ", ".join(f"{left} heads left ({name})" for name, left in free.items())
        + "."
    )
    pictures = {
        "importance": figures.by_layer_and_head(panels),
        "pruning": figures.pruning_curve(curves, spread, _unigram_loss(subject, batches)),
    }
    return Section("Which heads matter", text, pictures, {"importance": heads, "pruning": rows})


def _loss(model: Any, batches: Any, removed: list[pruning.Head]) -> float:
    return pruning.loss_with(model, batches, pruning.gates_without(model, removed))


def _unigram_loss(subject: Subject, batches: Any) -> float:
    unigram = subject.dataset.unigram
    targets = np.bincount(torch.cat([batch.targets for batch in batches]).numpy(), minlength=len(unigram))
    return unigram_loss(targets, unigram, subject.tokenizer.special)


def gated(subject: Subject, options: Options) -> Section | None:
    """Which heads fine-tuning with L0 gates leaves open; None unless asked for."""
    if options.gate_steps is None:
        return None
    batches = list(subject.masked())
    model, opened = gates.tune(subject, options.gate_steps, options.penalty)
    closed = [
        (layer, head) for layer, each in enumerate(opened) for head, gate in enumerate(each.tolist()) if gate == 0
    ]
    total = sum(value_heads(model))
    before = _loss(subject.model, batches, [])
    after = pruning.loss_with(model, batches, opened)
    importances = importance.per_layer(importance.by_gradient(subject.model, batches))
    same = _loss(subject.model, batches, pruning.order(importances)[: len(closed)])
    rows = [
        {"layer": layer, "head": head, "gate": gate}
        for layer, each in enumerate(opened, 1)
        for head, gate in enumerate(each.tolist(), 1)
    ]
    text = (
        f"Hard-concrete gates on the heads' outputs, {options.gate_steps} steps of fine-tuning at {options.penalty} "
        f"nats a head (Voita et al.): {total - len(closed)} of {total} stay open. The loss is {after:.3f} nats, "
        f"{before:.3f} before; removing as many by gradient, without fine-tuning, gives {same:.3f}."
    )
    drawn = figures.by_layer_and_head({"gate: 0 for a head that is closed": by_layer(rows, "gate")}, columns=1)
    gates.fold(model, opened)
    tuned = {"gated": (replace(subject, model=model), closed)}
    return Section("Heads behind gates", text, {"gates": drawn}, {"gates": rows}, models=tuned)


def talking(subject: Subject, options: Options) -> Section | None:
    """Which head talks to which; None where none does."""
    found = projections.projections_of(subject.model)
    if not any(found):
        return None
    entries = [
        {"layer": layer, "matrix": name, "before": i, "after": j, "value": value}
        for layer, named in enumerate(found, 1)
        for name, matrix in named.items()
        for i, row in enumerate(matrix.tolist(), 1)
        for j, value in enumerate(row, 1)
    ]
    summary: list[dict[str, Any]] = [
        {"layer": layer, "matrix": name, "from_identity": projections.from_identity(matrix),
         "off_diagonal": projections.off_diagonal(matrix), "partners": projections.partners(matrix)}
        for layer, named in enumerate(found, 1)
        for name, matrix in named.items()
    ]  # fmt: skip
    drawn: dict[str, list[float | None]] = {}
    for row in summary:
        drawn.setdefault(f"{row['matrix']} identity", []).append(row["from_identity"])
        drawn.setdefault(f"{row['matrix']} diagonal", []).append(row["off_diagonal"])
    columns = next(iter(found[0].values())).shape[1]
    chance = 1 - 1 / columns
    share, heard = (float(np.mean([row[name] for row in summary])) for name in ("off_diagonal", "partners"))
    text = (
        "P_l mixes the logits, P_w the weights; blue entries subtract. On average "
        f"{share:.0%} of the squared entries are off the diagonal ({chance:.0%} in a random matrix), and a head talks "
        f"to {heard:.1f} of {columns} heads in effect: the projections are "
        + (
            "neither diagonal nor sparse, as the paper's."
            if share > 0.5 and heard > 3
            else "nearly diagonal or sparse."
        )
    )
    pictures = {
        "projections": figures.projection_maps([{k: v.numpy() for k, v in named.items()} for named in found]),
        "projection_distances": figures.projection_distances(drawn, chance),
    }
    return Section("How the heads talk", text, pictures, {"projections": entries, "projection_distances": summary})


def bottleneck(subject: Subject, options: Options) -> Section:
    """The rank of the logits against key size and length."""
    tokens = next(subject.text())[:RANK_SEQUENCES]
    model = subject.model.double()
    try:
        seen = read(model, tokens, "logits", "mixed_logits")
    finally:
        model.float()
    length = tokens.shape[1]
    needed = [rank for rank in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if rank <= length]
    rows, curves, dots = [], [], {stage: [] for stage in ("logits", "mixed_logits")}  # type: ignore[var-annotated]
    for layer, stages in enumerate(seen, 1):
        divergences = rank.divergence_at(stages["mixed_logits"], needed).mean(1)
        curves.append(divergences.mean(1).numpy())
        for stage, maps in stages.items():
            numerical, effective = rank.numerical_rank(maps).double().mean(0), rank.effective_rank(maps).mean(0)
            dots[stage].append(effective.numpy())
            rows += [
                {"layer": layer, "stage": stage, "head": head, "numerical_rank": n, "effective_rank": e}
                for head, (n, e) in enumerate(zip(numerical.tolist(), effective.tolist(), strict=True), 1)
            ]
    matched = [
        {"layer": layer, "rank": r, "divergence": float(value)}
        for layer, values in enumerate(curves, 1)
        for r, value in zip(needed, values, strict=True)
    ]
    variant = subject.settings.variant
    key_size = int(variant.get("key_size", variant["hidden_size"]))
    heads = int(variant.get("key_heads", variant.get("heads", 1)))
    before, after = (
        np.mean([row["numerical_rank"] for row in rows if row["stage"] == stage])
        for stage in ("logits", "mixed_logits")
    )
    text = (
        f"A head's logits QK^T are an N x N matrix of rank at most d_k = {key_size}; mixed over {heads} heads it can "
        f"reach h d_k = {heads * key_size}, or N = {length}. Numerical rank before mixing {before:.1f}, after it "
        f"{after:.1f}, of {length}. The second picture: the weights of logits cut down to each rank, against the true "
        "ones."
    )
    lines = {f"d_k = {key_size}": key_size, f"N = {length}": length}
    if heads * key_size < length:
        lines[f"h d_k = {heads * key_size}"] = heads * key_size
    pictures = {
        "rank": figures.ranks(dots["logits"], dots["mixed_logits"], lines),
        "matching": figures.matching(needed, curves, key_size),
    }
    return Section("The bottleneck", text, pictures, {"rank": rows, "matching": matched})


def equal_start(subject: Subject, options: Options) -> Section | None:
    """Whether heads that start equal stay equal; None unless asked for."""
    if options.equal_steps is None:
        return None
    found = equal.spreads(subject, options.equal_steps)
    rows = [
        {"start": start, "step": step, "spread": value}
        for start, values in found.items()
        for step, value in enumerate(values)
    ]
    text = (
        "A model of the run's sizes is trained anew, in float64. The spread is the largest difference between the "
        f"outputs of two heads of a layer, relative to the largest output. {equal.verdict(found)}"
    )
    return Section("Heads that start equal", text, {"equal": figures.spreads(found)}, {"equal": rows})
