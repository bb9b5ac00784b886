"""Reading and gating the heads of a model, whatever the variant, through the hooks of its attention layers."""

# L layers, B batch, N queries, M memory, H heads, V value size

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attention.kernels.problem import Stage
from experiments.model.transformer import Transformer
from experiments.settings.mistake import Mistake

STAGE_MEANINGS: dict[Stage, str] = {
    "logits": "QK^T",
    "mixed_logits": "the logits that the softmax takes",
    "weights": "the maps of a softmax",
    "mixed_weights": "the maps that the values are summed by",
    "outputs": "the outputs of the heads",
}


@contextmanager
def hooked(model: Transformer, hook: Callable[[int, Stage, Tensor], Tensor]) -> Iterator[None]:
    """Run the reference kernel in the block, and let it continue with what `hook(layer, stage, tensor)` returns.

    Layers may share their attention, so that each sets its hook when its turn comes; a layer counts by
    its place in `model.attentions`.
    """
    attentions = model.attentions

    def set_hooks(places: list[int], layer: Any, _: object) -> None:
        for place in places:
            attentions[place].hook = partial(hook, place)

    handles = []
    for index, layer in enumerate(model.layers):
        # a layer's own, which others may share, and that to the encoder
        cross = [place for place, each in enumerate(attentions) if each is getattr(layer, "cross_attention", None)]
        handles.append(layer.register_forward_pre_hook(partial(set_hooks, [index, *cross])))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for attention in attentions:
            attention.hook = None


@contextmanager
def gated(model: Transformer, gates: Sequence[Tensor]) -> Iterator[None]:
    """Multiply, in the block, the outputs of each layer's value heads by its gates, [H] or [B, H]."""
    with gated_by(model, lambda layer: gates[layer]):
        yield


@contextmanager
def gated_by(model: Transformer, gate: Callable[[int], Tensor]) -> Iterator[None]:
    """A block as that of `gated`; every forward pass computes a layer's gates anew and has a graph of its own."""
    with hooked(model, lambda layer, stage, x: x * gate(layer).unsqueeze(-2)[..., None] if stage == "outputs" else x):
        yield


def read_stages(model: Transformer, inputs: Tensor | Mapping[str, Tensor], *stages: Stage) -> list[dict[str, Tensor]]:
    """The tensors of the stages on these tokens, or inputs, without gradients: one dict for each of `model.attentions`.

    Raises Mistake for a stage that the variant doesn't have.
    """
    for stage in stages:
        if not has_stages(model, stage):
            raise Mistake(f"the variant has no {stage.replace('_', ' ')}, which this reads: {STAGE_MEANINGS[stage]}")
    tensors: list[dict[str, Tensor]] = [{} for _ in model.attentions]

    def collect(layer: int, stage: Stage, tensor: Tensor) -> Tensor:
        if stage in stages:
            tensors[layer][stage] = tensor
        return tensor

    with torch.inference_mode(), hooked(model, collect):
        named = {"tokens": inputs} if isinstance(inputs, Tensor) else inputs
        model(**named, positions=torch.zeros(1, dtype=torch.long))
    return tensors


def has_stages(model: Transformer, *stages: Stage) -> bool:
    """Whether the attention of every layer goes through the stages: without a softmax there are no weights of it."""
    return all(stage in attention.stages for attention in model.attentions for stage in stages)


def value_heads(model: Transformer) -> list[int]:
    """The number of heads that each layer can lose: those of the values, whose outputs are what a layer passes on."""
    return [attention.value_heads for attention in model.attentions]


def check_prunable(model: Transformer, option: str) -> None:
    """Raises Mistake where the variant has no heads that can be left out or copied."""
    if len(model.attentions) > len(model.layers):
        raise Mistake(f"{option}: takes heads out of an encoder or a decoder, not of an encoder-decoder")
    if not all(attention.prunable for attention in model.attentions):
        raise Mistake(f"{option}: no head of this variant can be taken out")


def check_unshared_heads(model: Transformer, option: str) -> None:
    """Raises Mistake where no head can be taken out of one layer, by the variant or as layers share their attention."""
    check_prunable(model, option)
    if len({layer.attention for layer in model.layers}) < len(model.layers):
        raise Mistake(f"{option}: the layers share their attention (model.sharing), so no head is one layer's alone")
