"""Building a model from settings, with its starting values."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from experiments.model.initialization import initialize
from experiments.model.layers.norm import deep_gains, ends_with_norm
from experiments.model.transformer import Transformer
from experiments.settings.model import Model
from experiments.settings.objective import ARCHITECTURES


def construct(architecture: str, model: Model, variant: dict[str, Any], vocabulary_size: int) -> Transformer:
    """Construct the model of experiments/model/architectures/ARCHITECTURE.py, without starting values.

    variant: the content of a YAML file of conf/variant: `name`, a module of `attention`, and its arguments.
    """
    module = import_module(f"{ARCHITECTURES}.{architecture}")
    transformer: Transformer = module.Architecture(model, variant, vocabulary_size)
    return transformer


def build(architecture: str, model: Model, variant: dict[str, Any], vocabulary_size: int, seed: int) -> Transformer:
    """Build the model on the CPU. Its starting values depend only on the arguments; the global RNG stays as it was."""
    with torch.random.fork_rng(devices=[]):
        transformer = construct(architecture, model, variant, vocabulary_size)
    initialize(transformer, seed, model.initial_std)
    if model.initial_std is None:
        # once, even if layers share them
        for attention in dict.fromkeys(transformer.attentions):
            if not attention.scaled:
                attention.fold_scale()
    if model.norm == "deep":
        beta = deep_gains(model.layers).beta
        branches = (branch for layer in transformer.layers for branch in layer.branches())
        # once, even if layers share them
        gains = {linear: beta ** (2 / len(branch)) for branch in branches for linear in branch}
        for linear, gain in gains.items():
            scale([linear], gain)
    if model.branches_scaled:
        # Radford et al. 2019, 2.3
        for layers in transformer.stacks:
            last = [linear for layer in layers for linear in layer.last_maps()]
            scale(last, len(last) ** -0.5)
    if model.embedding_size != model.hidden_size and not ends_with_norm(model.norm):
        rescale_narrow_embedding(transformer, model)
    return transformer


def scale(maps: Iterable[nn.Linear | nn.Embedding], gain: float) -> None:
    """Multiply the starting values of linear maps or embeddings by the gain, but those that layers share only once."""
    with torch.no_grad():
        for each in dict.fromkeys(maps):
            each.weight.mul_(gain)


def rescale_narrow_embedding(transformer: Transformer, model: Model) -> None:
    """Rescale narrow embeddings, so that the residual stream and tied logits start at the same scale as with E = D.

    Without a norm after its sums, the stream keeps its initial scale. The first layers would then drown narrow
    embeddings, and for a long time a run would learn only the frequencies of single tokens
    (docs/small_differences.md). Models with such norms start as in Lan et al. 2020.
    """
    embedding, to_logits = transformer.get_submodule("embedding"), transformer.get_submodule("head.transform")
    # a logit is a sum over E features, and a scaled one is also divided by sqrt(E)
    gain = 1.0 if model.output_scaled else (model.hidden_size / model.embedding_size) ** 0.5
    # those of the model itself start its other streams
    inputs = (*embedding.children(), *transformer.children())
    scale((each for each in inputs if isinstance(each, nn.Embedding)), gain)
    # a norm has undone the gain, and with sinusoids it makes up for the factor sqrt(E); where scaled outputs leave no
    # gain, narrow embeddings start smaller beside sinusoids
    undone = model.embedding_norm or model.position == "sinusoidal"
    keep_scale(embedding.get_submodule("projection"), model, 1.0 if undone else 1 / gain)
    # BERT's transform, which is no linear map, ends with a norm
    keep_scale(to_logits, model)


def keep_scale(module: nn.Module, model: Model, gain: float = 1.0) -> None:
    """Let a linear map start with outputs of the scale of its inputs, times the gain; leave other modules alone."""
    if isinstance(module, nn.Linear):
        std = module.in_features**-0.5
        scale([module], gain * std / (model.initial_std or std))
