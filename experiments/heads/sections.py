"""The sections of the report: each takes a run, measures, and hands back words, pictures and tables."""

# L layers, B batch, N queries, M memory, H heads

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from experiments.explain import Mistake
from experiments.heads import distance, equal, gates, importance, projections, pruning, rank, syntax
from experiments.heads.profile import profile
from experiments.heads.subject import Subject
from experiments.heads.taps import read, value_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 24  # tokens of the held-out text whose maps are shown, where no sentence is given
RANDOM_ORDERS = 3
POINTS = 12  # numbers of heads left at which the quality is measured
RANK_SEQUENCES = 8


@dataclass(frozen=True)
class Options:
    """What the reader asks for."""

    sentence: str | None = None  # whose maps are shown; None: the start of the held-out text
    trees: Sequence[syntax.Tree] | None = None  # of a treebank, for syntactic heads
    equal_steps: int | None = None  # of the experiment with heads that start equal; None: not made
    gate_steps: int | None = None  # of fine-tuning with gates on the heads; None: not made
    penalty: float = 0.02  # nats for each head that is open


@dataclass(frozen=True)
class Section:
    title: str
    text: str  # what is seen, in a few sentences
    figures: dict[str, Figure] = field(default_factory=dict)  # by file name
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by file name
    maps: dict[str, Any] | None = None  # what the page's viewer of maps shows


def maps(subject: Subject, options: Options) -> Section:
    """Every map for one text."""
    from experiments.heads import figures

    tokens = sentence(subject, options.sentence)
    seen = [
        {name: x[0] for name, x in layer.items()} for layer in read(subject.model, tokens, "weights", "mixed_weights")
    ]
    words = subject.words(tokens[0])
    stages = {"weights": "weights of the softmax"}
    if any(not torch.equal(layer["weights"], layer["mixed_weights"]) for layer in seen):
        stages["mixed_weights"] = "weights after P_w"
    rows = [
        {"stage": stage, "layer": layer, "head": head, "query": n, "query_token": words[n], "memory": m,
         "memory_token": words[m], "weight": value}
        for stage in stages
        for layer, found in enumerate(seen, 1)
        for head, each in enumerate(found[stage].tolist(), 1)
        for n, row in enumerate(each)
        for m, value in enumerate(row)
    ]  # fmt: skip
    shown = {
        title: [
            [[round(value, 4) for value in row] for row in each.flatten(1).tolist()]
            for each in (layer[stage] for layer in seen)
        ]
        for stage, title in stages.items()
    }
    text = (
        "Rows are the tokens that look, columns the tokens that are looked at; the darker, the more weight. "
        "Choose a map to enlarge it."
    )
    picture = figures.thumbnails([layer["weights"].numpy() for layer in seen])
    return Section("Attention maps", text, {"maps": picture}, {"maps": rows}, {"words": words, "stages": shown})


def sentence(subject: Subject, text: str | None) -> Tensor:
    """int64 [1, N]: [CLS] text [SEP], or the first tokens of the held-out text. Raises Mistake where it is too long."""
    if text is None:
        return next(subject.text())[:1, :SHOWN]
    tokenizer, length = subject.tokenizer, subject.settings.length
    ids = [tokenizer.cls_id, *tokenizer.encode([text])[0].tolist(), tokenizer.sep_id]
    if len(ids) > length:
        raise Mistake(f"--sentence: is {len(ids)} tokens with [CLS] and [SEP], must be at most length = {length}")
    return torch.tensor([ids])


def roles(subject: Subject, options: Options) -> Section:
    """What each head looks at, as numbers."""
    from experiments.heads import figures

    rows = profile(subject)
    titles = {
        "entropy": "entropy (nats)",
        "confidence": "confidence",
        "special": "weight on special tokens",
        "rarest": "points to the rarest token",
        "previous": "weight on the previous token",
        "next": "weight on the next token",
        "current": "weight on the token itself",
        "offset_share": "points to one fixed offset",
    }
    counts = {role: sum(row["role"] == role for row in rows) for role in dict.fromkeys(row["role"] for row in rows)}
    told = ", ".join(f"{count} {role}" for role, count in sorted(counts.items(), key=lambda each: -each[1]))
    positional = [f"{row['layer']}-{row['head']} ({row['offset']:+d})" for row in rows if row["role"] == "positional"]
    text = (
        f"{len(rows)} heads: {told}. Entropy is at most ln {subject.settings.length} = "
        f"{math.log(subject.settings.length):.2f} nats; confidence is the mean largest weight on a token that is not "
        "special; the others are shares of the weight, or of the tokens."
        + (f" Positional heads, layer-head (offset): {', '.join(positional)}." if positional else "")
    )
    panels = {title: _matrix(rows, name) for name, title in titles.items()}
    return Section("What the heads look at", text, {"roles": figures.by_layer_and_head(panels)}, {"heads": rows})


def distances(subject: Subject, options: Options) -> Section:
    """Which heads attend alike."""
    from experiments.heads import figures

    between, names = distance.distances_of(subject)
    points = distance.plane(between)
    layers = [layer for layer, _ in names]
    within = distance.within_layers(between, np.array(layers))
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
        f"attend alike, ln 2 = 0.69 nats at most; drawn in two dimensions. {_trend(within)}"
    )
    drawn = figures.head_plane(points, layers, [head for _, head in names], within)
    depth = [{"layer": layer, "distance": value} for layer, value in within.items()]
    tables = {"distances": pairs, "plane": plane, "distance_within_layers": depth}
    return Section("Which heads attend alike", text, {"distances": drawn}, tables)


def _trend(within: dict[int, float]) -> str:
    """Claim X3: the distance between the heads of a layer falls with depth."""
    if len(within) < 2:
        return ""
    from scipy.stats import spearmanr

    trend = float(spearmanr(list(within), list(within.values())).statistic)
    first, *_, last = within.values()
    falls = "falls" if trend < -0.5 else "rises" if trend > 0.5 else "neither falls nor rises"
    return (
        f"Within a layer the mean distance {falls} with depth: {first:.3f} in the first, {last:.3f} in the last "
        f"(rank correlation with depth {trend:+.2f}); in BERT it falls (Clark et al.)."
    )


def important(subject: Subject, options: Options) -> Section:
    """Which heads matter, and what is lost without the others."""
    from experiments.heads import figures

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
        "gradient (nats per masked token)": _matrix(heads, "gradient"),
        "gradient, l2 norm 1 in a layer": _matrix(heads, "gradient_in_layer"),
        "relevance, sum 1 in a layer": _matrix(heads, "relevance"),
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
    """Nats per masked token of predicting by single-token frequencies, one added to each count."""
    counts = torch.from_numpy(subject.dataset.unigram + 1.0)
    targets = torch.cat([batch.targets for batch in batches])
    return float(-(counts[targets] / counts.sum()).log().mean())


def gated(subject: Subject, options: Options) -> Section | None:
    """Which heads fine-tuning with L0 gates leaves open; None unless asked for."""
    if options.gate_steps is None:
        return None
    from experiments.heads import figures

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
    drawn = figures.by_layer_and_head({"gate: 0 for a head that is closed": _matrix(rows, "gate")}, columns=1)
    return Section("Heads behind gates", text, {"gates": drawn}, {"gates": rows})


def talking(subject: Subject, options: Options) -> Section | None:
    """Which head talks to which; None where none does."""
    from experiments.heads import figures

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
    from experiments.heads import figures

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


def syntactic(subject: Subject, options: Options) -> Section | None:
    """Which heads find a word's grammatical head; None without a treebank."""
    if options.trees is None:
        return None
    from experiments.heads import figures

    rows, used = syntax.accuracies(subject, options.trees)
    if not rows:
        raise Mistake(f"--treebank: no relation is {syntax.LEAST} times in the sentences that fit")
    best = syntax.best_of_each_relation(rows)
    found = [row for row in best if row["accuracy"] >= row["baseline"] + syntax.ABOVE]
    told = ", ".join(f"{row['layer']}-{row['head']} ({row['relation']}, {row['direction']})" for row in found[:6])
    text = (
        f"{used} sentences of the treebank. A head is right where the word that it weighs most, of all others of the "
        "sentence, is the one that the relation leads to, from either end; the baseline is the best fixed offset. "
        f"{len(found)} of {len(best)} relations have a head {100 * syntax.ABOVE:.0f} points above it"
        + (f": {told}{', ...' if len(found) > 6 else ''}." if found else ".")
    )
    drawn = figures.relations(
        [f"{row['relation']}, {row['direction']}" for row in best],
        np.array([row["accuracy"] for row in best]),
        np.array([row["baseline"] for row in best]),
        [f"{row['layer']}-{row['head']}" for row in best],
    )
    return Section("Syntactic heads", text, {"syntax": drawn}, {"syntax": rows})


def equal_start(subject: Subject, options: Options) -> Section | None:
    """Whether heads that start equal stay equal; None unless asked for."""
    if options.equal_steps is None:
        return None
    from experiments.heads import figures

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


def _matrix(rows: list[dict[str, Any]], name: str) -> Any:
    """[L, H], nan where a layer has fewer heads."""
    matrix = np.full((max(row["layer"] for row in rows), max(row["head"] for row in rows)), np.nan)
    for row in rows:
        matrix[row["layer"] - 1, row["head"] - 1] = row[name]
    return matrix


SECTIONS: tuple[Callable[[Subject, Options], Section | None], ...] = (
    maps, roles, syntactic, distances, important, gated, talking, bottleneck, equal_start,
)  # fmt: skip
