"""From settings to a model with its starting values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from experiments import settings
from experiments.model.assembly import Assembly
from experiments.model.bert import Bert
from experiments.model.causal import Causal
from experiments.model.encoder import Layer
from experiments.model.encoder_decoder import EncoderDecoder
from experiments.model.initial import initialize
from experiments.model.norm import deep_gains
from experiments.model.permutation import Permutation
from experiments.model.sentence_order import SentenceOrder

ASSEMBLIES: dict[str, type[Assembly]] = {
    "encoder": Bert,
    "sentence_order": SentenceOrder,
    "causal": Causal,
    "permutation": Permutation,
    "encoder_decoder": EncoderDecoder,
}


def build(assembly: str, model: settings.Model, variant: dict[str, Any], vocabulary_size: int, seed: int) -> Assembly:
    """On the CPU, with its starting values: a function of the arguments. The global RNG is left as it was."""
    with torch.random.fork_rng(devices=[]):
        whole = ASSEMBLIES[assembly](model, variant, vocabulary_size)
    initialize(whole, seed, model.initial_std)
    if model.norm == "deep":
        scale_start(whole.layers, deep_gains(model.layers).beta)
    return whole


def scale_start(layers: Sequence[Layer], gain: float) -> None:
    """Multiply the starting values of the layers' branches, once where layers share them."""
    with torch.no_grad():
        for linear in dict.fromkeys(linear for layer in layers for linear in layer.branch_maps()):
            linear.weight.mul_(gain)
