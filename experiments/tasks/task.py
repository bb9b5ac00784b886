"""The interface of a task: the data that a run learns from, and the model that learns.

There are two: a text to predict (`pretraining`), and the examples of a benchmark (`finetuning`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from experiments.data.packing import Dataset
from experiments.data.tokenizer import ReportProgress

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer
    from experiments.objectives.objective import Objective, Vocabulary


class Task(Protocol):
    """The data that a run learns from, and the model that learns."""

    @property
    def name(self) -> str:
        """The task's name in messages."""

    def identity(self) -> dict[str, Any] | None:
        """The value that `corpus` of a result would have; None if only the hub could tell. Raises DataError."""

    def tokenizer_digest(self) -> str | None:
        """The digest of the tokenizer, if settings name its file; None for another. Raises DataError."""

    def is_ready(self) -> bool:
        """Whether `prepare` would find everything in the cache. Raises DataError."""

    def prepare(self, report: ReportProgress) -> Dataset:
        """The sequences, made if the cache lacks them. Raises DataError."""

    def objective(self, vocabulary: Vocabulary) -> Objective:
        """The objective for the sequences. Before they are prepared it is valid only for shapes."""

    def remark(self) -> str:
        """A line that a run should say about the weights that it starts from; empty if there is none."""

    def vocabulary_size(self) -> int:
        """The number of ids of the tokenizer.

        For one that is yet to be trained, it is the number that was asked for.
        """

    def build_model(self, vocabulary_size: int) -> Transformer:
        """The model without its values. Raises Mistake for sizes that do not fit together."""

    def build_initialized_model(self, vocabulary_size: int) -> Transformer:
        """The model with its starting values, on the CPU. Raises Mistake."""
