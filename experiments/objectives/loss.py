"""The loss of a batch, computed from the model's logits at the positions to predict."""

# B batch, P positions to predict, V vocabulary

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.objectives.cross_entropy import CrossEntropy, at_least_float32
from experiments.objectives.objective import Batch


class LossSums(NamedTuple):
    """The summed losses of a batch or of a part of one: scalars in float64. The sums of the parts add up."""

    tokens: Tensor  # nats, summed over the positions to predict
    smoothed: Tensor  # the same with the label smoothing of training
    labels: Tensor  # nats, summed over the sequences' labels
    correct: Tensor  # number of labels to which the model gives the highest probability

    def mean(self, batch: Batch) -> Tensor:
        """The loss that is minimized: the mean over the whole batch's positions, plus the mean over its labels."""
        mean = self.smoothed / len(batch.targets)
        return mean if batch.labels is None else mean + self.labels / len(batch.labels)


def predict(model: Callable[..., Any], batch: Batch, label_smoothing: float = 0.0) -> tuple[Tensor, LossSums]:
    """The logits [P, V] at the positions, and the sums of the batch's losses. The model and batch are on one device."""
    if batch.labels is None:
        logits_PV = model(**batch.inputs, positions=batch.positions)
        smoothed = loss(logits_PV, batch.targets, label_smoothing)
        labels = correct = torch.zeros_like(smoothed)
    else:
        logits_PV, classes_BC = model(**batch.inputs, positions=batch.positions, classes=True)
        smoothed = loss(logits_PV, batch.targets, label_smoothing)
        labels = loss(classes_BC, batch.labels)
        correct = (classes_BC.argmax(-1) == batch.labels).sum(dtype=torch.float64)
    tokens = loss(logits_PV.detach(), batch.targets) if label_smoothing else smoothed
    return logits_PV, LossSums(tokens, smoothed, labels, correct)


def loss(logits_PV: Tensor, targets_P: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The sum of the negative log likelihoods in nats, or of the squared errors if the targets are numbers.

    Targets that are IGNORED_TARGET, and numbers that are NaN, have no loss.

    Losses are computed in float32 or better, and summed in float64. label_smoothing: the share of a target's
    probability that is spread evenly over the vocabulary (Szegedy et al. 2016, 1512.00567, 7).
    """
    if targets_P.is_floating_point():
        errors_P = (at_least_float32(logits_PV[:, 0]) - targets_P).masked_fill(targets_P.isnan(), 0.0)
        return errors_P.square().sum(dtype=torch.float64)
    losses_P: Tensor = CrossEntropy.apply(logits_PV, targets_P, label_smoothing)
    return losses_P.sum(dtype=torch.float64)
