"""Classification: one of several labels for a text, or for a pair of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.data.errors import DataError
from experiments.failures.wording import did_you_mean, joined
from experiments.settings.finetuning import Classification
from experiments.tasks.finetuning.kind import Logits
from experiments.tasks.finetuning.labelled import LabelledKind


class Kind(LabelledKind[Classification]):
    """Labels, which rows hold by their names or by their numbers."""

    def label(self, value: Any, where: str) -> int:
        """The number of the label. An integer is its number, or its name if that consists of digits."""
        task = self.task
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        number = value if is_integer and 0 <= value < len(task.labels) else None
        is_name = (is_integer or isinstance(value, str)) and str(value) in task.labels
        named = task.labels.index(str(value)) if is_name else None
        if number is not None and named not in (None, number):
            raise DataError(
                f"{where}: {value} in column {task.label} may be the label of this name, which is number {named}, or "
                f"that of this number, {task.labels[number]!r}; write names as text, or give task.labels other names"
            )
        if (label := named if number is None else number) is not None:
            return label
        known = ", ".join(f"{number} {label}" for number, label in enumerate(task.labels))
        hint = " (a split whose labels are hidden?)" if value == -1 else did_you_mean(str(value), task.labels)
        if isinstance(value, bool | float) or (isinstance(value, str) and value.isdecimal()):
            hint = "; a number must be an integer, and a name must be text"
        raise DataError(f"{where}: unknown label {value!r} in column {task.label}; there are: {known}{hint}")

    def stored(self, label: float) -> int:
        """The number of the label."""
        return int(label)

    def remark(self, train: npt.NDArray[np.integer], validation: npt.NDArray[np.integer]) -> str:
        """The labels that only the validation splits have, because a model cannot learn them."""
        unseen = [self.task.labels[number] for number in np.setdiff1d(validation, train).tolist()]
        return f"train has no example of {joined(unseen)}, which validation has" if unseen else ""

    def predicted(self, logits_WC: Logits) -> npt.NDArray[Any]:
        """The number of the likeliest label."""
        return logits_WC.argmax(1)

    def written(self, predicted: npt.NDArray[Any]) -> list[str]:
        """The names of the labels."""
        return [self.task.labels[number] for number in predicted.tolist()]
