"""The kinds of norm: one table, read by the settings and by the model that is built from them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class NormKind(NamedTuple):
    """A norm over the last dimension: a module whose constructor takes its size, `eps` and `options`."""

    module: str  # imported when a model is built
    name: str  # of the class in it
    options: Mapping[str, Any] = MappingProxyType({})
    of_batch: bool = False  # its statistics are of a batch's tokens, so that a token depends on the others


NORM_KINDS = {
    # Ba et al. 2016, 1607.06450
    "layer": NormKind("torch.nn", "LayerNorm"),
    "layer_no_bias": NormKind("torch.nn", "LayerNorm", {"bias": False}),
    # Zhang and Sennrich 2019, 1910.07467
    "rms": NormKind("experiments.model.layers.norm", "RMSNorm"),
    # Ioffe and Szegedy 2015, 1502.03167: padding counted as text, and over real tokens only
    "batch": NormKind("experiments.model.layers.batch_norm", "BatchNorm", {"masked": False}, of_batch=True),
    "batch_masked": NormKind("experiments.model.layers.batch_norm", "BatchNorm", {"masked": True}, of_batch=True),
}
