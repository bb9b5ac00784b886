"""Reading and gating the heads of a model of any variant, through the hooks of its attention layers."""

# L layers, B batch, N queries, M memory, H heads, V value size

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attention.kernels.problem import Stage
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.heads.parts import decoder_layers
from experiments.model.transformer import Transformer

STAGE_MEANINGS: dict[Stage, str] = {
    "logits": "QK^T",
    "mixed_logits": "the logits that the softmax takes",
    "weights": "the maps of a softmax",
    "mixed_weights": "the maps that the values are summed by",
    "outputs": "the outputs of the heads",
}


@contextmanager
def hooked(model: Transformer, hook: Callable[[int, Stage, Tensor], Tensor]) -> Iterator[None]:
    """A block in which `hook(layer, stage, tensor)` replaces the tensor of each stage; the reference kernel runs.

    Layers may share their attention, so each sets its hook before it runs. A layer's number is its place in
    `model.attentions`.
    """
    attentions = model.attentions

    def set_hooks(places: list[int], layer: Any, _: object) -> None:
        for place in places:
            attentions[place].hook = partial(hook, place)

    handles = []
    for index, layer in enumerate(model.layers):
        # the layer's self-attention, which others may share, and its attention to the encoder
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
    """A block in which the outputs of each layer's value heads are multiplied by its gates, [H] or [B, H]."""
    with gated_by(model, lambda layer: gates[layer]):
        yield


@contextmanager
def gated_by(model: Transformer, gate: Callable[[int], Tensor]) -> Iterator[None]:
    """A block like that of `gated`, in which every forward pass computes a layer's gates again, with its own graph."""
    with hooked(model, lambda layer, stage, x: x * gate(layer).unsqueeze(-2)[..., None] if stage == "outputs" else x):
        yield


def read_stages(model: Transformer, inputs: Tensor | Mapping[str, Tensor], *stages: Stage) -> list[dict[str, Tensor]]:
    """The tensors of the stages on these tokens or inputs, without gradients, as one dict for each of
    `model.attentions`.

    Raises Mistake for a stage that the variant does not have, or names but does not compute.
    """
    for stage in stages:
        if not has_stages(model, stage):
            raise Mistake(
                f"the variant has no {stage.replace('_', ' ')}, which are needed here: {STAGE_MEANINGS[stage]}"
            )
    tensors: list[dict[str, Tensor]] = [{} for _ in model.attentions]

    def collect(layer: int, stage: Stage, tensor: Tensor) -> Tensor:
        if stage in stages:
            tensors[layer][stage] = tensor
        return tensor

    with torch.inference_mode(), hooked(model, collect):
        arguments = {"tokens": inputs} if isinstance(inputs, Tensor) else inputs
        model(**arguments, positions=torch.zeros(1, dtype=torch.long))
    for attention, given in zip(model.attentions, tensors, strict=True):
        if lacking := [stage for stage in stages if stage not in given]:
            raise Mistake(
                f"{type(attention).__name__} names {joined(lacking)} in `stages`, but its reference kernel does not "
                "give it to the hook"
            )
    return tensors


def has_stages(model: Transformer, *stages: Stage) -> bool:
    """Whether the attention of every layer has these stages; for example, weights exist only with a softmax."""
    return all(stage in attention.stages for attention in model.attentions for stage in stages)


def value_heads(model: Transformer) -> list[int]:
    """The number of heads that each layer can lose: its value heads, whose outputs the layer passes on."""
    return [attention.value_heads for attention in model.attentions]


def check_prunable(model: Transformer, option: str) -> None:
    """Raises Mistake if the variant has no heads that can be removed or copied."""
    if decoder_layers(model):
        raise Mistake(f"{option}: needs an encoder or a decoder, not an encoder-decoder")
    if not all(attention.prunable for attention in model.attentions):
        raise Mistake(f"{option}: heads of this variant can be neither removed nor copied")


def check_removable(model: Transformer, option: str) -> None:
    """Raises Mistake if no head can be removed from the weights of a single layer."""
    check_unshared_heads(model, option)
    if heads_have_biases(model):
        raise Mistake(
            f"{option}: the positions of this model (model.position) have a bias for every head of the softmax, so no "
            "head can be removed"
        )


def heads_have_biases(model: Transformer) -> bool:
    """Whether a softmax head would be removed with a value head that the model's positions have a bias for.

    All layers share these biases, so such a head cannot be removed from one of them.
    """
    if model.relative is None:
        return False
    smaller = copy.deepcopy(model.layers[0].attention)
    smaller.keep_heads(range(1, smaller.value_heads))
    fewer: bool = smaller.softmax_heads < model.layers[0].attention.softmax_heads
    return fewer


def check_unshared_heads(model: Transformer, option: str) -> None:
    """Raises Mistake if no head belongs to a single layer, because of the variant or of shared layers."""
    check_prunable(model, option)
    if len({layer.attention for layer in model.layers}) < len(model.layers):
        raise Mistake(
            f"{option}: the layers share their attention (model.sharing), so no head belongs to a single layer"
        )
