"""Classification: one of several labels for a text, or for a pair of texts."""

from __future__ import annotations

import re
from functools import cached_property
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

    @cached_property
    def _digits(self) -> dict[str, int]:
        """The labels' numbers by their digits, as CSV has them; empty if a label's name consists of digits."""
        labels = self.task.labels
        return {} if any(map(str.isdecimal, labels)) else {str(number): number for number in range(len(labels))}

    def label(self, value: Any, where: str) -> int:
        """The number of the label. An integer is its number, or its name if that consists of digits.

        A text is its name, or its number if no label's name consists of digits.
        """
        task = self.task
        if isinstance(value, str) and value in self._digits:
            return self._digits[value]
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
        hint = " (a split whose labels are hidden?)" if str(value) == "-1" else did_you_mean(str(value), task.labels)
        if isinstance(value, bool | float) or re.fullmatch(r"\d+\.\d*", str(value)):
            hint = "; a number must be an integer"
        elif isinstance(value, str) and value.isdecimal() and not self._digits:
            hint += "; where names are numbers, text must be a name"
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
