"""The interface of objectives, which turn sequences into what a model reads and what it has to predict.

One objective is one file, `experiments/objectives/kinds/KIND.py`, with two classes. An `ObjectiveKind` holds the
settings and says what the objective needs from the data and the model. It builds an `Objective`. The values of the
settings are in `conf/objective/KIND.yaml`. Such a file must not import torch: it makes arrays, and `Batch.of_arrays`
makes tensors of them.
"""

# B batch, N length, P positions to predict, C outputs for a position

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.settings.objective import ObjectiveSettings

if TYPE_CHECKING:
    from torch import Tensor


class ObjectiveKind(ObjectiveSettings):
    """The settings of a kind of objective. They build the objective."""

    @abstractmethod
    def build(self, vocabulary: Vocabulary) -> Objective:
        """Build the objective of these settings for a vocabulary. Raises Mistake if it can't be carried out."""


class Objective(Protocol):
    """Makes batches from sequences. Every batch is a pure function of the sequences, the seed and the step."""

    vocabulary: Vocabulary  # the vocabulary of what the model reads

    @property
    def lengths_vary(self) -> bool:
        """Whether the sequences of different batches differ in length."""

    @property
    def evaluation_seed(self) -> int:
        """The seed that an evaluation uses instead of the run's seed; the same for every run."""

    @property
    def predicted_share(self) -> float:
        """The share of the tokens that the model reads which are to be predicted."""

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch of step `step`, counted from 0, made from these sequences; a pure function of its arguments.

        It has no positions if there is nothing to predict in the sequences; then a run leaves its step out.
        """


@runtime_checkable
class ScoredObjective(Protocol):
    """An objective that also scores what the model predicts, besides its loss."""

    def scores(self, logits: list[npt.NDArray[np.floating]]) -> Scores:
        """Score the logits [P, C] of all evaluated batches, given in order."""


@runtime_checkable
class DecodedObjective(Protocol):
    """An objective that, at the end of a run, also scores texts that the model generates."""

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, as of any objective; its targets are the tokens of the reference texts, including end tokens."""

    def decoding(self) -> Decoding:
        """How the texts are decoded."""

    def score_texts(self, texts: list[str], references: list[str]) -> TextScores:
        """Score the model's texts against the reference texts of the corpus."""


class Decoding(NamedTuple):
    """How texts are generated, and how many."""

    beam: int  # hypotheses of the beam search
    length_penalty: float  # alpha of ((5 + tokens) / 6)^alpha, by which a log likelihood is divided
    sequences: int | None  # number of sequences of the validation split to decode at the end of a run; None: all


class TextScores(NamedTuple):
    """The scores of texts that a model generated."""

    scores: dict[str, float]  # by the name of the metric
    meaning: str  # how they were computed


class Scores(NamedTuple):
    """The scores of a model's predictions, and the predictions."""

    scores: dict[str, float]
    predictions: dict[str, Any]  # must be convertible to JSON


class Vocabulary(Protocol):
    """What an objective needs to know about the tokenizer."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""

    @property
    def special(self) -> frozenset[int]:
        """Ids that do not occur in text."""

    @property
    def pad_id(self) -> int:
        """Id of [PAD]."""

    @property
    def unk_id(self) -> int:
        """Id of [UNK]; if no text is unknown to the tokenizer, the id of the end of a text."""

    @property
    def cls_id(self) -> int:
        """Id of [CLS]."""

    @property
    def sep_id(self) -> int:
        """Id of [SEP]."""

    @property
    def mask_id(self) -> int | None:
        """Id of [MASK]; None if the vocabulary has no such token."""

    @property
    def sentinel_ids(self) -> Sequence[int]:
        """Ids of <extra_id_0>, <extra_id_1>, ..."""


class Batch(NamedTuple):
    """What a model reads in a step, and what it has to predict."""

    inputs: dict[str, Tensor]  # keywords of the model's forward; the first dimension of each is B
    positions: Tensor  # int64 [P], positions to predict in the flattened [B, N], ascending
    targets: Tensor  # int64 [P], the correct tokens or labels at these positions; float32 if they are numbers
    length: int  # N, the length of the sequences that are predicted
    unpadded: int | None = None  # tokens that the model reads on both sides, without padding; None: all of `tokens`
    labels: Tensor | None = None  # int64 [B], the class of each sequence, if the model predicts classes

    @classmethod
    def of_arrays(
        cls,
        inputs: Mapping[str, npt.NDArray[Any]],
        positions: npt.NDArray[np.integer],
        targets: npt.NDArray[Any],
        length: int,
        unpadded: int | None = None,
        labels: npt.NDArray[np.integer] | None = None,
    ) -> Batch:
        """Make a batch from arrays. The tensors share the memory of the arrays and have the same dtypes."""
        from torch import from_numpy

        return cls(
            {name: from_numpy(array) for name, array in inputs.items()},
            from_numpy(positions),
            from_numpy(targets),
            length,
            unpadded,
            None if labels is None else from_numpy(labels),
        )

    @property
    def tokens(self) -> Tensor:
        """What the model reads, or its encoder if it has one: int64 [B, N]."""
        return self.inputs["tokens"]

    @property
    def tokens_read(self) -> int:
        """Number of tokens that the model reads, without padding."""
        return self.tokens.numel() if self.unpadded is None else self.unpadded

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with `change` applied to each tensor."""
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        labels = None if self.labels is None else change(self.labels)
        return self._replace(
            inputs=inputs, positions=change(self.positions), targets=change(self.targets), labels=labels
        )


def build_objective(settings: ObjectiveSettings, vocabulary: Vocabulary) -> Objective:
    """Build the objective of checked settings.

    Raises Mistake if it can't be carried out, and for an objective without something that `Objective` names.
    """
    assert isinstance(settings, ObjectiveKind)
    objective = settings.build(vocabulary)
    members = [*Objective.__annotations__, *(name for name in vars(Objective) if not name.startswith("_"))]
    if lacking := [name for name in members if not hasattr(objective, name)]:
        kind = type(objective)
        raise Mistake(f"{inspect.getsourcefile(kind)}: the class {kind.__name__} lacks {joined(lacking)}")
    return objective
