"""What a task is: what a run learns from, and the model that learns it.

There are two: a text to predict (`pretraining`), and the examples of a benchmark (`finetuning`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from experiments.data.packing import Dataset
from experiments.data.tokenizer import Report

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer
    from experiments.objectives.objective import Objective, Vocabulary


class Task(Protocol):
    """What a run learns from, and the model that learns it."""

    @property
    def name(self) -> str:
        """The name that messages have for it."""

    def identity(self) -> dict[str, Any] | None:
        """What `corpus` of a result would be; None for what only the hub could tell. Raises DataError."""

    def is_ready(self) -> bool:
        """Whether `prepare` would find everything in the cache. Raises DataError."""

    def prepare(self, report: Report) -> Dataset:
        """The sequences, made if they aren't in the cache. Raises DataError."""

    def objective(self, vocabulary: Vocabulary) -> Objective:
        """What is asked of the sequences. Before they are prepared it is good for shapes alone."""

    def vocabulary_size(self) -> int:
        """Ids of the tokenizer: of one to be trained the number asked for, as no text has been read yet."""

    def build_model(self, vocabulary_size: int) -> Transformer:
        """The model without its values. Raises Mistake for sizes that don't go together."""

    def build_initialized_model(self, vocabulary_size: int) -> Transformer:
        """The model with its starting values, on the CPU. Raises Mistake."""
