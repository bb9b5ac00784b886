"""Classification: one of several labels for a text, or for a pair of texts."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from experiments.data.errors import DataError
from experiments.settings.finetuning import Classification
from experiments.tasks.finetuning.kind import Logits
from experiments.tasks.finetuning.labelled import LabelledKind


class Kind(LabelledKind[Classification]):
    """Labels, which rows hold by their names or by their numbers."""

    def label(self, value: Any, where: str) -> int:
        """The number of the label."""
        task = self.task
        if isinstance(value, str) and value in task.labels:
            return task.labels.index(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(task.labels):
            return value
        known = ", ".join(f"{number} {label}" for number, label in enumerate(task.labels))
        hint = " (a split whose labels are hidden?)" if value == -1 else ""
        raise DataError(f"{where}: unknown label {value!r} in column {task.label}; there are: {known}{hint}")

    def stored(self, label: float) -> int:
        """The number of the label."""
        return int(label)

    def predicted(self, logits_WC: Logits) -> npt.NDArray[Any]:
        """The number of the likeliest label."""
        return logits_WC.argmax(1)

    def written(self, predicted: npt.NDArray[Any]) -> list[str]:
        """The names of the labels."""
        return [self.task.labels[number] for number in predicted.tolist()]
