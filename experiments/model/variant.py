"""From a variant group to its layer: the file name is the registry."""

from __future__ import annotations

import importlib
from typing import Any

from attention.layers.frame import AttentionLayer
from experiments.settings.variant import arguments_of, module_of


def build_attention(variant: dict[str, Any]) -> AttentionLayer:
    """One attention layer of a resolved `conf/variant` group. Raises ValueError for sizes that don't go together."""
    module = importlib.import_module(f"attention.{module_of(variant)}")
    layer: AttentionLayer = module.Attention(**arguments_of(variant))
    return layer
