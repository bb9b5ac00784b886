"""The section with attention maps: every map of every head for one text."""

# N tokens

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attention.kernels.problem import Stage
from experiments.failures.failure import Mistake
from experiments.heads.hooks import has_stages, read_stages
from experiments.heads.map_figures import attention_maps
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import parts_of
from experiments.heads.section import Section
from experiments.heads.trained_run import TrainedRun

STAGE_TITLES: dict[Stage, str] = {"weights": "weights of the softmax", "mixed_weights": "weights of the values"}
DEFAULT_TOKENS = 24  # tokens of the held-out text whose maps are shown if no sentence is given


def make(run: TrainedRun, options: HeadsOptions) -> Section:
    """The section with every map for one text."""
    inputs = shown_inputs(run, options.sentence)
    texts = {name: run.token_texts(tokens[0]) for name, tokens in inputs.items()}
    present: list[Stage] = [stage for stage in STAGE_TITLES if has_stages(run.model, stage)]
    layers = [{stage: x[0] for stage, x in layer.items()} for layer in read_stages(run.model, inputs, *present)]
    if all(torch.equal(layer[present[0]], layer[present[-1]]) for layer in layers):
        present = present[:1]
    rows: list[dict[str, Any]] = []
    viewer, pictures = {}, {}
    for part in parts_of(run.model):
        queries, memory = texts[part.queries], texts[part.memory]
        of_part = [layers[place] for place in part.places]
        rows += [
            part.row | {"stage": stage, "layer": layer, "head": head, "query": n, "query_token": queries[n],
                        "memory": m, "memory_token": memory[m], "weight": value}
            for stage in present
            for layer, maps in enumerate(of_part, 1)
            for head, each in enumerate(maps[stage].tolist(), 1)
            for n, row in enumerate(each)
            for m, value in enumerate(row)
        ]  # fmt: skip
        for stage in present:
            viewer[f"{part.name}: {STAGE_TITLES[stage]}" if part.name else STAGE_TITLES[stage]] = {
                "rows": queries,
                "columns": memory,
                "layers": [
                    [[round(value, 4) for value in row] for row in layer[stage].flatten(1).tolist()]
                    for layer in of_part
                ],
            }
        map_of_head = {
            part.head(layer, head): each.numpy()
            for layer, maps in enumerate(of_part, 1)
            for head, each in enumerate(maps[present[0]], 1)
        }
        pictures[part.of("maps")] = attention_maps(map_of_head, len(of_part[0][present[0]]), queries, memory)
    text = (
        "Rows are the tokens that attend, and columns are the tokens that they attend to. The darker an entry, the "
        "larger the weight. Each map has its own scale, up to its largest weight. A map is named by its layer and its "
        "head: 2-3 is head 3 of layer 2. Choose a map to enlarge it."
    )
    return Section("Attention maps", text, pictures, {"maps": rows}, viewer)


def shown_inputs(run: TrainedRun, text: str | None) -> dict[str, Tensor]:
    """The inputs of the model for one text, each [1, N]: [CLS] text [SEP], or the start of the held-out text.

    An encoder-decoder reads the inputs that its objective makes. Raises Mistake for an empty or too long text, and for
    half a pair.
    """
    pairs = run.has_two_sides and run.settings.objective.reads_pairs
    if text is not None and pairs:
        raise Mistake(
            f"--sentence: objective={run.settings.objective.kind} reads pairs; leave it out to see a held-out pair"
        )
    tokens = _sentence_tokens(run, text) if text is not None else next(run.token_batches())[:1]
    if text is None and not pairs:
        tokens = tokens[:, :DEFAULT_TOKENS]
    if not run.has_two_sides:
        return {"tokens": tokens}
    # the objective itself adds [SEP] to both sides
    row = tokens if text is None else tokens[:, :-1]
    inputs = run.objective.batch(row.numpy(), run.objective.evaluation_seed, 0).inputs
    sides = {name: inputs[name] for name in ("tokens", "decoder_tokens")}
    # one text needs no padding
    real = {name: int((side != run.tokenizer.pad_id).sum()) for name, side in sides.items()}
    return {name: side[:, : real[name]] if pairs else side for name, side in sides.items()}


def _sentence_tokens(run: TrainedRun, text: str) -> Tensor:
    """int64 [1, N]: [CLS] text [SEP]. Raises Mistake for an empty or too long text."""
    if not text.strip():
        raise Mistake("--sentence: is empty")
    tokenizer, length = run.tokenizer, run.settings.length
    ids = [tokenizer.cls_id, *tokenizer.encode([text])[0].tolist(), tokenizer.sep_id]
    if len(ids) > length:
        raise Mistake(f"--sentence: has {len(ids)} tokens with [CLS] and [SEP]; at most length = {length} are allowed")
    return torch.tensor([ids])
