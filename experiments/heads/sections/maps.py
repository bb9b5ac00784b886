"""The section with attention maps: every map of every head for one text."""

# H heads, N queries, M memory

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
import torch
from matplotlib.figure import Figure
from torch import Tensor

from attention.kernels.problem import Stage
from experiments.failures.failure import Mistake
from experiments.heads.hooks import has_stages, read_stages
from experiments.heads.map_figures import attention_maps
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part, parts_of
from experiments.heads.section import Maps, Section
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer

STAGE_TITLES: dict[Stage, str] = {"weights": "weights of the softmax", "mixed_weights": "weights of the values"}
DEFAULT_TOKENS = 24  # tokens of the held-out text whose maps are shown if no sentence is given
# in all maps of a text: 263 tokens in 12 layers of 12 heads have as many, and their page has 27 MB
MAX_WEIGHTS = 10_000_000


def make(run: TrainedRun, options: HeadsOptions) -> Section:
    """The section with every map for one text."""
    inputs = shown_inputs(run, options.sentence)
    texts = {name: run.token_texts(tokens[0]) for name, tokens in inputs.items()}
    stages = shown_stages(run.model, inputs)
    layers = read_stages(run.model, inputs, *stages)
    tables, viewer, pictures = [], {}, {}
    for part in parts_of(run.model):
        queries, memory = texts[part.queries], texts[part.memory]
        for stage in stages:
            maps = Maps(queries, memory, [layers[place][stage][0].numpy() for place in part.places])
            tables.append(map_table(part.row | {"stage": stage}, maps))
            viewer[f"{part.name}: {STAGE_TITLES[stage]}" if part.name else STAGE_TITLES[stage]] = maps
            if stage == stages[0]:
                pictures[part.of("maps")] = _picture(part, maps)
    text = (
        "Rows are the tokens that attend, and columns are the tokens that they attend to. The darker an entry, the "
        "larger the weight. Each map has its own scale, up to its largest weight. A map is named by its layer and its "
        "head: 2-3 is head 3 of layer 2. Choose a map to enlarge it."
    )
    return Section("Attention maps", text, pictures, {"maps": pyarrow.concat_tables(tables)}, viewer)


def map_table(constants: Mapping[str, str], maps: Maps) -> pyarrow.Table:
    """A row for every weight. Layers share the arrays of the places, so that a weight takes few bytes."""
    most_heads, (N, M) = max(map(len, maps.layers)), maps.layers[0].shape[1:]
    head, query, memory = (index.ravel() for index in np.indices((most_heads, N, M), np.int32))
    same = {name: _words(np.zeros(len(head), np.int8), [value]) for name, value in constants.items()}
    places = {
        "head": head + 1, "query": query, "query_token": _words(query, maps.queries),
        "memory": memory, "memory_token": _words(memory, maps.memory),
    }  # fmt: skip
    layers = []
    for layer, weights in enumerate(maps.layers, 1):
        columns = same | {"layer": np.full(len(head), layer, np.int32)} | places
        present = {name: column[: weights.size] for name, column in columns.items()}
        layers.append(pyarrow.table(present | {"weight": weights.ravel()}))
    return pyarrow.concat_tables(layers)


def _words(index: Any, words: Sequence[str]) -> pyarrow.DictionaryArray:
    return pyarrow.DictionaryArray.from_arrays(index, words)


def _picture(part: Part, maps: Maps) -> Figure:
    by_head = {
        part.head(layer, head): weights
        for layer, of_layer in enumerate(maps.layers, 1)
        for head, weights in enumerate(of_layer, 1)
    }
    return attention_maps(by_head, len(maps.layers[0]), maps.queries, maps.memory)


def shown_stages(model: Transformer, inputs: Mapping[str, Tensor]) -> list[Stage]:
    """The stages with maps of their own. Without a mixing of the weights, those of the values are those of the softmax.

    inputs: of any text; its first two tokens tell.
    """
    present: list[Stage] = [stage for stage in STAGE_TITLES if has_stages(model, stage)]
    first = {name: tokens[:, :2] for name, tokens in inputs.items()}
    layers = read_stages(model, first, *present)
    alike = all(torch.equal(layer[present[0]], layer[present[-1]]) for layer in layers)
    return present[:1] if alike else present


def shown_inputs(run: TrainedRun, text: str | None) -> dict[str, Tensor]:
    """The inputs of the model for one text, each [1, N]: [CLS] text [SEP], or the start of the held-out text.

    An encoder-decoder reads the inputs that its objective makes. Raises Mistake for a too long text, and for half a
    pair.
    """
    inputs = _inputs(run, text)
    most = _most_tokens(run.model, shown_stages(run.model, inputs))
    if text is not None and (longest := max(tokens.shape[1] for tokens in inputs.values())) > most:
        raise Mistake(
            f"--sentence: has {longest} tokens with [CLS] and [SEP]; the maps of all heads of {run.name} are shown for "
            f"at most {most}"
        )
    return {name: tokens[:, :most] for name, tokens in inputs.items()}


def _most_tokens(model: Transformer, stages: Sequence[Stage]) -> int:
    """The largest number of tokens whose maps together have at most MAX_WEIGHTS weights."""
    heads = {"weights": "softmax_heads", "mixed_weights": "value_heads"}
    maps = sum(getattr(attention, heads[stage]) for attention in model.attentions for stage in stages)
    return math.isqrt(MAX_WEIGHTS // maps)


def _inputs(run: TrainedRun, text: str | None) -> dict[str, Tensor]:
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
    """int64 [1, N]: [CLS] text [SEP]. Raises Mistake for a too long text."""
    tokenizer, length = run.tokenizer, run.settings.length
    ids = [tokenizer.cls_id, *tokenizer.encode([text])[0].tolist(), tokenizer.sep_id]
    if len(ids) > length:
        raise Mistake(f"--sentence: has {len(ids)} tokens with [CLS] and [SEP]; at most length = {length} are allowed")
    return torch.tensor([ids])
