"""The sizes of a row's model, which the cache keeps: computing the cost of a layer takes torch, whose import takes
longer than rendering a finished table.
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments.data.cache import Cache
from experiments.record.code.digests import code_digest
from experiments.settings.run import Settings
from experiments.tables.sources.source import Value


def row_sizes(settings: Settings) -> dict[str, Value]:
    """Names and sizes as in the papers, and the multiplications of one attention layer for one sequence."""
    cache = Cache(Path(settings.cache), None)
    sizes = [settings.variant, settings.layers, settings.hidden_size, settings.length]
    key = ["sizes", *sizes, code_digest(settings.model_dump(), None)]
    kept: dict[str, Value] = json.loads(cache.recall(key) or cache.remember(key, json.dumps(_computed(settings))))
    return kept


def _computed(settings: Settings) -> dict[str, Value]:
    from experiments.model.layers.build_attention import build_attention
    from experiments.model.without_values import without_values

    with without_values():
        layer = build_attention(settings.variant)
    cost = layer.cost(settings.length, settings.length)
    return {
        "variant": settings.variant["name"],
        "h_k": layer.sizes.key_heads,
        "h": layer.sizes.softmax_heads,
        "h_v": layer.sizes.value_heads,
        "d_k": layer.sizes.key_size,
        "d_v": layer.sizes.value_size,
        "layers": settings.layers,
        "hidden_size": settings.hidden_size,
        "attention_parameters": cost.parameters,
        "multiplies": cost.multiplies,
    }
