"""The seeds of attention dropout: each use of an attention layer gets its own seed for every micro-batch."""

from __future__ import annotations

from torch import nn

from experiments.model.initialization import path_seed
from experiments.model.layers.encoder import EncoderLayer


def reseed(model: nn.Module, seed: int) -> None:
    """Derive the seed of every layer's attention dropout from `seed` and the layer's path in the model.

    The seeds are filled in place, so that torch.compile sees the same tensors. Until the first call they are 0.
    """
    for path, layer in model.named_modules():
        if isinstance(layer, EncoderLayer):
            for index, each in enumerate(layer.dropout_seeds):
                each.fill_(path_seed(seed, f"{path}/{index}") >> 1)
