"""The importance of heads: by gradient (Michel et al. 2019, 1905.10650) and by relevance (Voita et al. 2019,
1905.09418).
"""

# L layers, B batch, N queries, H value heads, V value size

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from experiments.heads.hooks import gated, hooked, value_heads
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer
from experiments.objectives.loss import loss
from experiments.objectives.objective import Batch


def by_gradient(model: Transformer, batches: Iterable[Batch]) -> list[Tensor]:
    """[H] for each layer: the sum over sequences of |d loss / d gate| at gates of 1, in nats per predicted token
    (equation 2).

    To first order, this is the change of the loss of a sequence if the head is removed. `normalized_by_layer` gives the
    paper's scale.
    """
    totals = [torch.zeros(heads, dtype=torch.float64) for heads in value_heads(model)]
    tokens = 0
    for batch in batches:
        gates = [torch.ones(len(batch.tokens), heads, requires_grad=True) for heads in value_heads(model)]
        with gated(model, [gate.to(next(model.parameters()).dtype) for gate in gates]):
            batch_loss = loss(model(**batch.inputs, positions=batch.positions), batch.targets)
        for layer, gradient in enumerate(torch.autograd.grad(batch_loss, gates)):
            totals[layer] += gradient.double().abs().sum(0)
        tokens += len(batch.targets)
    return [total / tokens for total in totals]


@functools.cache
def of_run_by_gradient(run: TrainedRun) -> list[Tensor]:
    """`by_gradient` on the held-out text of a run, computed once."""
    return by_gradient(run.model, run.masked_batches())


def normalized_by_layer(importance: list[Tensor]) -> list[Tensor]:
    """Each layer's importance divided by its l2 norm, by which the paper compares layers."""
    return [values / values.norm().clamp(min=1e-30) for values in importance]


def by_relevance(model: Transformer, batches: Iterable[Batch]) -> list[Tensor]:
    """[H] for each layer, with sum 1: a head's share of the relevance for the likeliest token, averaged over
    predictions.

    The relevance of a layer's outputs is divided among its heads in proportion to its size. Each sequence has one
    prediction, its first.
    """
    totals = [torch.zeros(heads, dtype=torch.float64) for heads in value_heads(model)]
    predictions = 0
    for batch in batches:
        relevance = head_relevance(model, first_predictions(batch))
        for layer, values in enumerate(relevance):
            size = values.double().abs()
            totals[layer] += (size / size.sum(-1, keepdim=True).clamp(min=1e-30)).sum(0)
        predictions += len(relevance[0])
    return [total / predictions for total in totals]


def head_relevance(model: Transformer, batch: Batch) -> list[Tensor]:
    """[B, H] for each layer: the signed relevance of each head for the top-1 logit of the one prediction of each
    sequence.

    Layer-wise relevance propagation by ratios of weights (Voita et al., appendix A): through a linear map, a feature
    gets the share of the relevance that it has in the sum. If the other steps (activations, gates, the scale of norms,
    the attention weights) are held at the ratio of output to input, this is output times gradient (Ali et al. 2022,
    2202.07304). The contribution of biases is assigned to no feature.
    """
    outputs: dict[int, Tensor] = {}

    def hook(layer: int, stage: str, tensor: Tensor) -> Tensor:
        if stage == "mixed_weights":
            return tensor.detach()
        if stage == "outputs":
            outputs[layer] = tensor
        return tensor

    with linearized(model), hooked(model, hook):
        top_logits = model(**batch.inputs, positions=batch.positions).amax(-1).sum()
    gradients = torch.autograd.grad(top_logits, [outputs[layer] for layer in sorted(outputs)])
    return [(outputs[layer] * gradient).sum((1, 3)).detach() for layer, gradient in enumerate(gradients)]


def first_predictions(batch: Batch) -> Batch:
    """The sequences of the batch that have a position to predict, each with the first such position only."""
    length = batch.length
    owner = batch.positions // length
    first = torch.cat([torch.ones(1, dtype=torch.bool), owner[1:] != owner[:-1]])
    positions = torch.arange(int(first.sum())) * length + batch.positions[first] % length
    inputs = {name: tensor[owner[first]] for name, tensor in batch.inputs.items()}
    return Batch(inputs, positions, batch.targets[first], length)


@contextmanager
def linearized(model: Transformer) -> Iterator[None]:
    """A block in which activations and norms f are replaced by x -> x f(x0) / x0, which is linear in x, and in which a
    gate is a constant: its product with what it gates would be quadratic.
    """
    replaced: list[tuple[nn.Module, str, Any]] = []
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            replaced.append((module, "forward", None))
            module.__dict__["forward"] = _linearized_norm(module)
            continue
        if isinstance(gate := getattr(module, "gate", None), nn.Linear):
            replaced.append((gate, "forward", None))
            gate.__dict__["forward"] = _constant(gate)
        if callable(activation := getattr(module, "activation", None)):
            replaced.append((module, "activation", activation))
            setattr(module, "activation", _linearized_activation(activation))  # noqa: B010 - its type is a module's
    try:
        yield
    finally:
        for module, name, original in replaced:
            if original is None:
                del module.__dict__[name]
            else:
                setattr(module, name, original)


def _linearized_norm(norm: nn.LayerNorm | nn.RMSNorm) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x
        assert norm.eps is not None
        scale = (centred.square().mean(-1, keepdim=True) + norm.eps).rsqrt().detach()
        scaled = centred * scale * norm.weight
        # a norm without biases has None
        return scaled + norm.bias if isinstance(norm, nn.LayerNorm) and norm.bias is not None else scaled

    return forward


def _constant(gate: nn.Linear) -> Callable[[Tensor], Tensor]:
    return lambda x: nn.Linear.forward(gate, x).detach()


def _linearized_activation(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        return x * torch.where(x == 0, 0.0, activation(x) / x).detach()

    return forward
