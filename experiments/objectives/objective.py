"""What an objective is: it turns sequences into what a model is given, what it has to predict, and the loss of that.

One objective, one file: `experiments/objectives/KIND.py` with a class `Objective`, and `conf/objective/KIND.yaml` with
`kind: KIND` and the fields of the settings of that kind.
"""

# B batch, N length, P positions to predict, V vocabulary

from __future__ import annotations

from importlib import import_module
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments import settings


class Batch(NamedTuple):
    inputs: dict[str, Tensor]  # keywords of the model's forward; each has the B sequences along its first axis
    rows: Tensor  # int64 [P], positions to predict in the flattened [B, N], ascending
    targets: Tensor  # int64 [P], what stands there
    length: int  # N, of the sequences that are predicted

    @property
    def tokens(self) -> Tensor:
        """int64 [B, N]: what the model reads; with an encoder and a decoder, what the encoder reads."""
        return self.inputs["tokens"]


class Vocabulary(Protocol):
    """What an objective has to know of the tokenizer."""

    @property
    def vocabulary_size(self) -> int: ...
    @property
    def special(self) -> frozenset[int]: ...
    @property
    def mask_id(self) -> int: ...


class Objective(Protocol):
    assembly: ClassVar[str]  # the model that it trains, a key of experiments.model.build.ASSEMBLIES

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
        """Positions to predict, as a share of all."""


def build_objective(chosen: settings.Objective, vocabulary: Vocabulary) -> Objective:
    return _class(chosen)(chosen, vocabulary)


def assembly_of(chosen: settings.Objective) -> str:
    return _class(chosen).assembly


def _class(chosen: settings.Objective) -> type[Objective]:
    """`chosen.kind` names the module; the settings allow only the kinds there are."""
    kind: type[Objective] = import_module(f"experiments.objectives.{chosen.kind}").Objective
    return kind


def loss(logits_PV: Tensor, targets_P: Tensor) -> Tensor:
    """Negative log likelihood in nats, computed in float32 at least, summed in float64."""
    logits_PV = logits_PV.to(torch.promote_types(logits_PV.dtype, torch.float32))
    return F.cross_entropy(logits_PV, targets_P, reduction="none").sum(dtype=torch.float64)
