"""Texts, or pairs of texts, with a label or a number each: `[CLS] a [SEP] b [SEP]` in one window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from experiments.data.tokenizer import Tokenizer
from experiments.objectives.objective import Scores
from experiments.settings.finetuning import Labelled
from experiments.tasks.finetuning.kind import HeldOut, Logits, TaskKind
from experiments.tasks.finetuning.rows import Row, text_of
from experiments.tasks.finetuning.scores import score
from experiments.tasks.finetuning.windows import Window, fitting_sizes

Settings = TypeVar("Settings", bound=Labelled)


class LabelledExample(NamedTuple):
    """An example of a task with a label, its number, or with a number."""

    texts: list[str]
    label: float


class LabelledKind(TaskKind[Settings, LabelledExample]):
    """The part that classification and regression share."""

    @abstractmethod
    def label(self, value: Any, where: str) -> float:
        """The label's number, or the number, in the column `task.label`. Raises DataError."""

    @abstractmethod
    def stored(self, label: float) -> int:
        """The label as 32 bits of a window's targets."""

    @abstractmethod
    def predicted(self, logits_WC: Logits) -> npt.NDArray[Any]:
        """The prediction for each window."""

    @abstractmethod
    def written(self, predicted: npt.NDArray[Any]) -> list[Any]:
        """Predictions as `predictions.json` has them."""

    def example(self, row: Row, where: str) -> LabelledExample:
        """The texts, some of which are empty in published data sets, and the label."""
        texts = [text_of(row, column, where, empty=True) for column in self.task.texts]
        return LabelledExample(texts, self.label(row[self.task.label], where))

    def texts(self, example: LabelledExample) -> list[str]:
        """Its one text or two."""
        return example.texts

    def windows(self, examples: list[LabelledExample], tokenizer: Tokenizer, length: int) -> Iterator[list[Window]]:
        """Yield the one window of each example."""
        encoded = iter(tokenizer.encode([text for example in examples for text in example.texts]))
        for example in examples:
            texts = list(islice(encoded, len(example.texts)))
            yield [text_window(texts, tokenizer, length, self.stored(example.label))]

    def scores(self, logits: list[Logits], held_out: HeldOut) -> Scores:
        """The task's metrics on each validation split."""
        true, predicted = self.targets(held_out.targets), self.predicted(np.concatenate(logits))
        scores = {
            f"{metric}_{name}" if name else metric: score(metric, predicted[part], true[part])
            for name, part in held_out.parts.items()
            for metric in self.task.metrics
        }
        predictions: dict[str, Any] = {name: self.written(predicted[part]) for name, part in held_out.parts.items()}
        return Scores(scores, predictions.get("", predictions))


def text_window(texts: list[np.ndarray], tokenizer: Tokenizer, length: int, target: int) -> Window:
    """The window of one text or two. A text that is too long is cut; of two texts, the longer one first."""
    ends: list[tuple[int, ...]] = [(tokenizer.sep_id,)]
    if len(texts) == 2:
        ends.insert(0, tokenizer.between)
    sizes = fitting_sizes([len(text) for text in texts], length - 1 - sum(map(len, ends)))
    pieces = [np.append(text[:size], end) for text, size, end in zip(texts, sizes, ends, strict=True)]
    return Window(np.concatenate([[tokenizer.cls_id], *pieces]), 1 + len(pieces[0]), [target])
