"""Removing heads, one at a time or in order of importance (Michel et al. 2019, 1905.10650, sections 3 and 4), and the
smaller model.
"""

# L layers, H value heads

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from experiments.config.check import from_tree
from experiments.data.tokenizer import Tokenizer, load
from experiments.files.disk import read_bytes
from experiments.files.durable import read_sealed, replacing, swept, write, write_sealed
from experiments.heads.hooks import check_removable, gated, value_heads
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer
from experiments.objectives.loss import loss
from experiments.objectives.objective import Batch
from experiments.record.checkpoint_file import restore, weights, write_tensors
from experiments.record.folder import CONFIG, TOKENIZER, config_text, parse_config
from experiments.results.find import KEPT_HEADS
from experiments.tasks.pretraining import Pretraining

Head = tuple[int, int]  # layer and head, from 0


def removal_order(importance: Sequence[Tensor]) -> list[Head]:
    """All heads, the least important one first."""
    heads = [(layer, head) for layer, values in enumerate(importance) for head in range(len(values))]
    return sorted(heads, key=lambda each: float(importance[each[0]][each[1]]))


def random_order(model: Transformer, seed: int) -> list[Head]:
    """All heads in an order that the seed draws."""
    generator = torch.Generator().manual_seed(seed)
    return removal_order([torch.rand(heads, generator=generator) for heads in value_heads(model)])


def gates_without(model: Transformer, removed: Iterable[Head]) -> list[Tensor]:
    """Gates, [H] for each layer: 0 for the removed heads, 1 for the others."""
    gates = [torch.ones(heads, dtype=next(model.parameters()).dtype) for heads in value_heads(model)]
    for layer, head in removed:
        gates[layer][head] = 0.0
    return gates


def loss_with_gates(model: Transformer, batches: Iterable[Batch], gates: Sequence[Tensor]) -> float:
    """Nats per predicted token with the heads' outputs multiplied by the gates."""
    total, tokens = 0.0, 0
    with torch.inference_mode(), gated(model, gates):
        for batch in batches:
            total += float(loss(model(**batch.inputs, positions=batch.positions), batch.targets))
            tokens += len(batch.targets)
    return total / tokens


def loss_without_heads(model: Transformer, batches: Iterable[Batch], removed: Iterable[Head]) -> float:
    """Nats per predicted token without the outputs of the removed heads."""
    return loss_with_gates(model, batches, gates_without(model, removed))


def loss_without_each(model: Transformer, batches: Sequence[Batch], layer: int) -> list[float]:
    """[H]: nats per predicted token without a single head of the layer, one at a time (section 3.2).

    layer: its place in `model.attentions`.
    """
    return [loss_without_heads(model, batches, [(layer, head)]) for head in range(value_heads(model)[layer])]


def remove_heads(model: Transformer, removed: Iterable[Head]) -> list[list[int]]:
    """Remove the heads from the model for good, in place; returns a list of the remaining heads for each layer.

    Raises Mistake if there is a head to remove and the model does not allow it.
    """
    removed_heads = set(removed)
    if removed_heads:
        check_removable(model, "removing heads")
    kept_heads = [
        [h for h in range(heads) if (layer, h) not in removed_heads] for layer, heads in enumerate(value_heads(model))
    ]
    for layer, heads in zip(model.layers, kept_heads, strict=True):
        layer.attention.keep_heads(heads)
    return kept_heads


def export_pruned(run: TrainedRun, removed: Iterable[Head], folder: Path) -> Transformer:
    """Write the model without these heads for `load_pruned`, and return it. Raises Mistake, DiskError."""
    model = copy.deepcopy(run.model)
    kept_heads = remove_heads(model, removed)
    swept(folder)
    write(folder / CONFIG, config_text(run.settings.model_dump()))
    write_sealed(folder / KEPT_HEADS, {"heads": kept_heads})
    with replacing(folder / TOKENIZER) as temporary:
        run.tokenizer.save(temporary)
    with replacing(folder / "model.safetensors") as temporary:
        write_tensors({name: tensor.contiguous() for name, tensor in weights(model).items()}, temporary)
    return model


class PrunedModel(NamedTuple):
    """A model from which heads were removed, with the tokenizer of its run."""

    model: Transformer
    tokenizer: Tokenizer


def load_pruned(folder: Path) -> PrunedModel:
    """The model that `export_pruned` wrote. Raises Mistake if the files do not belong together."""
    settings = from_tree(parse_config(read_bytes(folder / CONFIG)))
    tokenizer = load(folder / TOKENIZER)
    model = Pretraining(settings).build_model(tokenizer.vocabulary_size).eval()
    for layer, kept_heads in zip(model.layers, read_sealed(folder / KEPT_HEADS)["heads"], strict=True):
        layer.attention.keep_heads(kept_heads)
    with torch.no_grad():
        restore(weights(model), load_file(folder / "model.safetensors"))
    return PrunedModel(model, tokenizer)


def largest_logit_difference(
    model: Transformer, smaller: Transformer, batches: Iterable[Batch], removed: Iterable[Head]
) -> float:
    """The largest difference in a logit between the model with masked heads and the one without them."""
    largest = 0.0
    with torch.inference_mode():
        for batch in batches:
            with gated(model, gates_without(model, removed)):
                expected = model(**batch.inputs, positions=batch.positions)
            largest = max(largest, float((expected - smaller(**batch.inputs, positions=batch.positions)).abs().max()))
    return largest
