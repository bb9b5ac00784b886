"""The sections about what the heads attend to: maps, roles, syntax, distances."""

# L layers, B batch, N queries, M memory, H heads

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from experiments.heads import figures
from experiments.heads.hooks import read
from experiments.heads.measures import distance, syntax
from experiments.heads.measures.profile import profile
from experiments.heads.section import Options, Section, by_layer
from experiments.heads.trained_run import Subject
from experiments.settings.mistake import Mistake

SHOWN = 24  # tokens of the held-out text whose maps are shown, where no sentence is given


def maps(subject: Subject, options: Options) -> Section:
    """Every map for one text."""
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
        "Rows are the tokens that look, columns the tokens that are looked at; the darker, the more weight; "
        "the darkest is the largest of its map. Choose a map to enlarge it."
    )
    picture = figures.thumbnails([layer["weights"].numpy() for layer in seen])
    return Section("Attention maps", text, {"maps": picture}, {"maps": rows}, {"words": words, "stages": shown})


def sentence(subject: Subject, text: str | None) -> Tensor:
    """int64 [1, N]: [CLS] text [SEP], or the first tokens of the held-out text. Raises Mistake for none or too many."""
    if text is None:
        return next(subject.text())[:1, :SHOWN]
    if not text.strip():
        raise Mistake("--sentence: has no words")
    tokenizer, length = subject.tokenizer, subject.settings.length
    ids = [tokenizer.cls_id, *tokenizer.encode([text])[0].tolist(), tokenizer.sep_id]
    if len(ids) > length:
        raise Mistake(f"--sentence: is {len(ids)} tokens with [CLS] and [SEP], must be at most length = {length}")
    return torch.tensor([ids])


def roles(subject: Subject, options: Options) -> Section:
    """What each head looks at, as numbers."""
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
    panels = {title: by_layer(rows, name) for name, title in titles.items()}
    return Section("What the heads look at", text, {"roles": figures.by_layer_and_head(panels)}, {"heads": rows})


def syntactic(subject: Subject, options: Options) -> Section | None:
    """Which heads find a word's grammatical head; None without a treebank."""
    if options.trees is None:
        return None
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
        + (f": {told}{' and others' if len(found) > 6 else ''}." if found else ".")
    )
    drawn = figures.relations(
        [f"{row['relation']}, {row['direction']}" for row in best],
        np.array([row["accuracy"] for row in best]),
        np.array([row["baseline"] for row in best]),
        [f"{row['layer']}-{row['head']}" for row in best],
    )
    return Section("Syntactic heads", text, {"syntax": drawn}, {"syntax": rows})


def distances(subject: Subject, options: Options) -> Section:
    """Which heads attend alike."""
    between, names = distance.distances_of(subject)
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
