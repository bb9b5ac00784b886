"""What an objective is: it turns sequences into what a model reads and what it has to predict.

One objective is one file, `experiments/objectives/kinds/KIND.py`, with two classes: an `ObjectiveKind`, which holds the
keys and says what the objective asks of the data and the model, and the `Objective` that it builds. The keys' values
stand in `conf/objective/KIND.yaml`. Such a file is read before torch is: it makes arrays, and `Batch.of_arrays` the
tensors.
"""

# B batch, N length, P positions to predict, C outputs a position

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from experiments.settings.objective import ObjectiveSettings

if TYPE_CHECKING:
    from torch import Tensor


class ObjectiveKind(ObjectiveSettings):
    """The keys of a kind of objective, and the objective that they make."""

    @abstractmethod
    def build(self, vocabulary: Vocabulary) -> Objective:
        """The objective of these settings for a vocabulary. Raises Mistake where it can't be carried out."""


class Objective(Protocol):
    """What is asked of a model; every batch is a pure function of sequences, seed and step."""

    vocabulary: Vocabulary  # of what the model reads

    @property
    def lengths_vary(self) -> bool:
        """Whether the length of the sequences differs between batches."""

    @property
    def evaluation_seed(self) -> int:
        """The seed of an evaluation in place of the run's: the same for every run."""

    @property
    def predicted_share(self) -> float:
        """Positions to predict, as a share of the tokens that the model reads."""

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch that step `step`, counted from 0, makes of these sequences: a pure function of its arguments.

        Mistake: sequences in which there is nothing to predict.
        """


@runtime_checkable
class ScoredObjective(Protocol):
    """An objective that is scored by what the model predicts, beside the loss."""

    def scores(self, logits: list[npt.NDArray[np.floating]]) -> Scores:
        """Scores of the logits [P, C] of every evaluated batch, in their order."""


@runtime_checkable
class DecodedObjective(Protocol):
    """An objective that is also scored, when a run ends, by the texts that the model writes by itself."""

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch of any objective; its targets hold the tokens of the reference texts, the end's included."""

    def decoding(self) -> Decoding:
        """How the texts are decoded."""

    def score_texts(self, texts: list[str], references: list[str]) -> TextScores:
        """The scores of the model's texts against those of the corpus."""


class Decoding(NamedTuple):
    """How a model's own texts are decoded, and how many of them."""

    beam: int  # hypotheses of the beam search
    length_penalty: float  # alpha of ((5 + tokens) / 6)^alpha, by which a log likelihood is divided
    sequences: int | None  # of the validation split, decoded when a run ends; None: all


class TextScores(NamedTuple):
    """What the texts that a model writes are worth."""

    scores: dict[str, float]  # by the name of the metric
    meaning: str  # how they were computed


class Scores(NamedTuple):
    """What a model's predictions are worth, and the predictions."""

    scores: dict[str, float]
    predictions: dict[str, Any]  # JSON-able


class Vocabulary(Protocol):
    """What an objective has to know of the tokenizer."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""

    @property
    def special(self) -> frozenset[int]:
        """Ids that no text has."""

    @property
    def pad_id(self) -> int:
        """Id of [PAD]."""

    @property
    def unk_id(self) -> int:
        """Id of [UNK]; that of the end of a text where nothing is unknown."""

    @property
    def cls_id(self) -> int:
        """Id of [CLS]."""

    @property
    def sep_id(self) -> int:
        """Id of [SEP]."""

    @property
    def mask_id(self) -> int | None:
        """Id of [MASK]; None where no model of the vocabulary hides tokens."""

    @property
    def sentinel_ids(self) -> Sequence[int]:
        """Ids of <extra_id_0>, <extra_id_1>, ..."""


class Batch(NamedTuple):
    """What a model reads in a step, and what it has to predict."""

    inputs: dict[str, Tensor]  # keywords of the model's forward; each has the B sequences along its first axis
    positions: Tensor  # int64 [P], positions to predict in the flattened [B, N], ascending
    targets: Tensor  # int64 [P], what stands there; float32 where it is a number
    length: int  # N, of the sequences that are predicted
    unpadded: int | None = None  # tokens that the model reads, on both sides, padding apart; None: all of `tokens`
    labels: Tensor | None = None  # int64 [B], a class to tell of each sequence, where the model tells one

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
        """The batch of arrays, whose memory and dtypes the tensors keep."""
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
        """int64 [B, N]: what the model reads; with an encoder and a decoder, what the encoder reads."""
        return self.inputs["tokens"]

    @property
    def tokens_read(self) -> int:
        """Tokens that the model reads, padding apart."""
        return self.tokens.numel() if self.unpadded is None else self.unpadded

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with every tensor changed."""
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        labels = None if self.labels is None else change(self.labels)
        return self._replace(
            inputs=inputs, positions=change(self.positions), targets=change(self.targets), labels=labels
        )


def build_objective(settings: ObjectiveSettings, vocabulary: Vocabulary) -> Objective:
    """The objective of checked settings. Raises Mistake where it can't be carried out."""
    assert isinstance(settings, ObjectiveKind)
    return settings.build(vocabulary)
