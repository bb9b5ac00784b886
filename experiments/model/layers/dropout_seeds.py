"""The seeds of attention dropout: each use of an attention layer gets its own seed for every micro-batch."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from experiments.model.initialization import path_seed
from experiments.model.layers.encoder import EncoderLayer


def dropout_seeds(model: nn.Module) -> dict[str, Tensor]:
    """The seed of each use of an attention layer, by the path of the layer that uses it and a number."""
    return {
        f"{path}/{index}": each
        for path, layer in model.named_modules()
        if isinstance(layer, EncoderLayer)
        for index, each in enumerate(layer.dropout_seeds)
    }


def reseed(seeds: Mapping[str, Tensor], seed: int) -> None:
    """Derive each of a model's seeds from `seed` and its name.

    They are filled in place, so that torch.compile sees the same tensors. Until the first call they are 0.
    """
    for name, each in seeds.items():
        each.fill_(path_seed(seed, name) >> 1)
