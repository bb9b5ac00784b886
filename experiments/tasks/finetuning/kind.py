"""The interface of a kind of task: how a row becomes an example, an example becomes windows, and logits become scores.

Each kind is a file, `experiments/tasks/finetuning/kinds/KIND.py` with KIND a `task.kind`, with one class `Kind`.
"""

# N tokens of a window, W windows, T targets of a window, P predicted positions, C outputs of a position

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from experiments.data.tokenizer import Tokenizer
from experiments.objectives.objective import Scores
from experiments.settings.finetuning import Benchmark, ExampleSource
from experiments.tasks.finetuning.rows import Row
from experiments.tasks.finetuning.windows import Window

Settings = TypeVar("Settings", bound=ExampleSource)
Example = TypeVar("Example")
Logits = npt.NDArray[np.floating]


class HeldOut(NamedTuple):
    """The windows of all validation splits, one after the other."""

    targets: npt.NDArray[np.integer]  # [W, T], as they are stored
    parts: dict[str, slice]  # windows of each split, by its name; a single one has none
    length: int  # N
    folder: Path  # with the kind's own files


class TaskKind(ABC, Generic[Settings, Example]):
    """A kind of task with its settings."""

    # files of the kind's own, which scoring needs beside the windows
    own_files: ClassVar[tuple[str, ...]] = ()

    def __init__(self, task: Settings) -> None:
        self.task = task

    @abstractmethod
    def example(self, row: Row, where: str) -> Example:
        """The example of a row, named `where` in messages. Raises DataError for a row that can't be used."""

    def identifier(self, example: Example) -> str | None:
        """The key, in words, that all examples of a validation split must differ in; None if they may be alike."""
        return None

    @abstractmethod
    def texts(self, example: Example) -> list[str]:
        """The texts of an example that a model reads, without the answer."""

    @abstractmethod
    def windows(self, examples: list[Example], tokenizer: Tokenizer, length: int) -> Iterator[list[Window]]:
        """Yield the windows of each example, of at most `length` tokens."""

    def write(
        self, files: dict[str, BinaryIO], example: Example, number: int, windows: list[Window], length: int
    ) -> None:
        """Append an example of a validation split, the one of that number, to `own_files`."""

    def targets(self, stored: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        """The targets of windows [W, T], flat: int64, or float32 where they are numbers."""
        return np.ascontiguousarray(stored).reshape(-1).astype(np.int64)

    def target_counts(self, stored: npt.NDArray[np.integer], length: int) -> npt.NDArray[np.int64]:
        """The number of times that each target occurs, for a guess without the input; [] for numbers."""
        return np.bincount(stored.reshape(-1), minlength=self.task.outputs or length)

    def remark(self, train: npt.NDArray[np.integer], validation: npt.NDArray[np.integer]) -> str:
        """What a run should say of the stored targets of its splits; empty if there is nothing."""
        return ""

    @abstractmethod
    def scores(self, logits: list[Logits], held_out: HeldOut) -> Scores:
        """Scores of the logits of every batch of the validation splits, in their order."""


def kind_of(task: Benchmark) -> TaskKind[Any, Any]:
    """The kind of a task."""
    kind: TaskKind[Any, Any] = import_module(f"experiments.tasks.finetuning.kinds.{task.kind}").Kind(task)
    return kind
