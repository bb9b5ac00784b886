"""What an objective is: it turns sequences into what a model is given, what it has to predict, and the loss of that.

One objective, one file: `experiments/objectives/KIND.py` with a class `Objective`, and `conf/objective/KIND.yaml` with
`kind: KIND` and the fields of the settings of that kind.
"""

# B batch, N length, P positions to predict, V vocabulary

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.objectives.cross_entropy import IGNORED, CrossEntropy, wide
from experiments.settings import objective as settings


class Batch(NamedTuple):
    inputs: dict[str, Tensor]  # keywords of the model's forward; each has the B sequences along its first axis
    rows: Tensor  # int64 [P], positions to predict in the flattened [B, N], ascending
    targets: Tensor  # int64 [P], what stands there; float32 where it is a number
    length: int  # N, of the sequences that are predicted
    unpadded: int | None = None  # tokens that the model reads, on both sides, padding apart; None: all of `tokens`
    labels: Tensor | None = None  # int64 [B], a class to tell of each sequence, where the model tells one

    @property
    def tokens(self) -> Tensor:
        """int64 [B, N]: what the model reads; with an encoder and a decoder, what the encoder reads."""
        return self.inputs["tokens"]

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """With every tensor changed."""
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        labels = None if self.labels is None else change(self.labels)
        return self._replace(inputs=inputs, rows=change(self.rows), targets=change(self.targets), labels=labels)

    @property
    def tokens_read(self) -> int:
        return self.tokens.numel() if self.unpadded is None else self.unpadded


class Sums(NamedTuple):
    """What a batch or a part of one costs: scalars in float64, which add up to those of the whole."""

    tokens: Tensor  # nats, of the positions to predict
    labels: Tensor  # nats, of the sequences' labels
    correct: Tensor  # labels to which the model gives the most

    def mean(self, batch: Batch) -> Tensor:
        """What is minimised, of the whole `batch`: the mean over positions, and that over labels, each its own."""
        mean = self.tokens / len(batch.targets)
        return mean if batch.labels is None else mean + self.labels / len(batch.labels)


class Vocabulary(Protocol):
    """What an objective has to know of the tokenizer."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def special(self) -> frozenset[int]: ...
    @property
    def pad_id(self) -> int: ...
    @property
    def cls_id(self) -> int: ...
    @property
    def sep_id(self) -> int: ...
    @property
    def mask_id(self) -> int: ...
    @property
    def sentinel_ids(self) -> Sequence[int]: ...


class Objective(Protocol):
    assembly: ClassVar[str]  # the model that it trains, a key of experiments.model.build.ASSEMBLIES
    lengths_vary: ClassVar[bool]  # from batch to batch
    vocabulary: Vocabulary  # of what the model reads

    def __init__(self, chosen: settings.Objective, vocabulary: Vocabulary) -> None: ...

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """What step `step`, counted from 0, makes of these sequences: a pure function of its arguments.

        ValueError: sequences in which there is nothing to predict.
        """

    @property
    def evaluation_seed(self) -> int:
        """In place of the run's seed when it is evaluated: the same for every run."""

    @property
    def predicted_share(self) -> float:
        """Positions to predict, as a share of the tokens that the model reads."""


class Scores(NamedTuple):
    scores: dict[str, float]
    predictions: dict[str, Any]  # JSON-able


@runtime_checkable
class Scored(Protocol):
    """An objective that is scored by what the model predicts, beside the loss."""

    def scores(self, logits: list[npt.NDArray[np.floating]]) -> Scores:
        """Of the logits [P, C] of every evaluated batch, in their order."""


class Decoding(NamedTuple):
    """How a model's own texts are decoded, and how many of them."""

    beam: int  # hypotheses of the beam search
    length_penalty: float  # alpha of ((5 + tokens) / 6)^alpha, by which a log likelihood is divided
    sequences: int | None  # of the validation split, decoded when a run ends; None: all


@runtime_checkable
class Decoded(Protocol):
    """An objective that is also scored, when a run ends, by the texts that the model writes by itself."""

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """As every objective's; its targets hold the tokens of the reference texts, the end's included."""

    def decoding(self) -> Decoding:
        """How the texts are decoded."""

    def score_texts(self, texts: list[str], references: list[str]) -> dict[str, Any]:
        """Fields of the run's result, from the texts of the model and those of the corpus."""

    @staticmethod
    def check_scorer(asked: str) -> None:
        """Raises ValueError, naming what `asked` for the scores, where the library that computes them is missing."""


def build_objective(chosen: settings.Objective, vocabulary: Vocabulary) -> Objective:
    """The objective that the settings choose."""
    return class_of(chosen)(chosen, vocabulary)


def assembly_of(chosen: settings.Objective) -> str:
    """The model that the chosen objective trains, a key of experiments.model.build.ASSEMBLIES."""
    return class_of(chosen).assembly


def class_of(chosen: settings.Objective) -> type[Objective]:
    """The class of the chosen objective: `kind` names its module; the settings allow only the kinds there are."""
    kind: type[Objective] = import_module(f"experiments.objectives.{chosen.kind}").Objective
    return kind


def predict(model: Callable[..., Any], batch: Batch, label_smoothing: float = 0.0) -> tuple[Tensor, Sums]:
    """Logits [P, V] of the positions, and what the model makes of the batch; all on one device."""
    if batch.labels is None:
        logits_PV = model(**batch.inputs, rows=batch.rows)
        tokens = loss(logits_PV, batch.targets, label_smoothing)
        return logits_PV, Sums(tokens, torch.zeros_like(tokens), torch.zeros_like(tokens))
    logits_PV, classes_BC = model(**batch.inputs, rows=batch.rows, classes=True)
    correct = (classes_BC.argmax(-1) == batch.labels).sum(dtype=torch.float64)
    tokens = loss(logits_PV, batch.targets, label_smoothing)
    return logits_PV, Sums(tokens, loss(classes_BC, batch.labels), correct)


def loss(logits_PV: Tensor, targets_P: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Negative log likelihood in nats, computed in float32 at least, summed in float64; of numbers squared errors.

    label_smoothing: the share of a target's probability that is spread evenly over the vocabulary (Szegedy et al. 2016,
    1512.00567, 7).
    """
    if targets_P.is_floating_point():
        errors_P = (wide(logits_PV[:, 0]) - targets_P).square()
        return errors_P.masked_fill(targets_P == IGNORED, 0.0).sum(dtype=torch.float64)
    losses_P: Tensor = CrossEntropy.apply(logits_PV, targets_P, label_smoothing)
    return losses_P.sum(dtype=torch.float64)
