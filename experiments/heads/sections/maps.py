"""Attention maps: every map of every head for one text."""

# N tokens

from __future__ import annotations

import torch
from torch import Tensor

from attention.kernels.problem import Stage
from experiments.heads import figures
from experiments.heads.hooks import has_stages, read_stages
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun
from experiments.settings.mistake import Mistake

STAGE_TITLES: dict[Stage, str] = {"weights": "weights of the softmax", "mixed_weights": "weights of the values"}
DEFAULT_TOKENS = 24  # tokens of the held-out text whose maps are shown, where no sentence is given


def make(run: TrainedRun, options: HeadsOptions) -> Section:
    """Every map for one text."""
    tokens = sentence_tokens(run, options.sentence)
    present: list[Stage] = [stage for stage in STAGE_TITLES if has_stages(run.model, stage)]
    layers = [{stage: x[0] for stage, x in layer.items()} for layer in read_stages(run.model, tokens, *present)]
    if all(torch.equal(layer[present[0]], layer[present[-1]]) for layer in layers):
        present = present[:1]
    token_texts = run.token_texts(tokens[0])
    rows = [
        {"stage": stage, "layer": layer, "head": head, "query": n, "query_token": token_texts[n], "memory": m,
         "memory_token": token_texts[m], "weight": value}
        for stage in present
        for layer, maps in enumerate(layers, 1)
        for head, each in enumerate(maps[stage].tolist(), 1)
        for n, row in enumerate(each)
        for m, value in enumerate(row)
    ]  # fmt: skip
    viewer_maps = {
        STAGE_TITLES[stage]: [
            [[round(value, 4) for value in row] for row in each.flatten(1).tolist()]
            for each in (layer[stage] for layer in layers)
        ]
        for stage in present
    }
    text = (
        "Rows are the tokens that look, columns the tokens that are looked at; the darker, the more weight; "
        "the darkest is the largest of its map. Choose a map to enlarge it."
    )
    picture = figures.map_thumbnails([layer[present[0]].numpy() for layer in layers])
    return Section(
        "Attention maps", text, {"maps": picture}, {"maps": rows}, {"words": token_texts, "stages": viewer_maps}
    )


def sentence_tokens(run: TrainedRun, text: str | None) -> Tensor:
    """int64 [1, N]: [CLS] text [SEP], or the first tokens of the held-out text. Raises Mistake for none or too many."""
    if text is None:
        return next(run.token_batches())[:1, :DEFAULT_TOKENS]
    if not text.strip():
        raise Mistake("--sentence: has no words")
    tokenizer, length = run.tokenizer, run.settings.length
    ids = [tokenizer.cls_id, *tokenizer.encode([text])[0].tolist(), tokenizer.sep_id]
    if len(ids) > length:
        raise Mistake(f"--sentence: is {len(ids)} tokens with [CLS] and [SEP], must be at most length = {length}")
    return torch.tensor([ids])
