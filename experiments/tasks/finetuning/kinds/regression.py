"""Regression: a number for a text, or for a pair of texts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.data.errors import DataError
from experiments.settings.finetuning import Regression
from experiments.tasks.finetuning.kind import Logits
from experiments.tasks.finetuning.labelled import LabelledKind

LARGEST = float(np.finfo(np.float32).max)


class Kind(LabelledKind[Regression]):
    """Numbers, which windows hold by the bits of a float32."""

    def label(self, value: Any, where: str) -> float:
        """The number, or the one that a text is, as in CSV; it has to be finite as a float32."""
        number = value
        if isinstance(value, str):
            with suppress(ValueError):
                number = float(value)
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= LARGEST:
            raise DataError(f"{where}: column {self.task.label} is {value!r}, not a number from -3.4e38 to 3.4e38")
        return float(number)

    def stored(self, label: float) -> int:
        """The bits of the number."""
        return int(np.float32(label).view(np.int32))

    def targets(self, stored: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """The numbers that the stored bits are."""
        return np.ascontiguousarray(stored).reshape(-1).astype(np.int32).view(np.float32)

    def target_counts(self, stored: npt.NDArray[np.integer], length: int) -> npt.NDArray[np.int64]:
        """Empty, because a guess at a number does not use counts."""
        return np.zeros(0, dtype=np.int64)

    def predicted(self, logits_WC: Logits) -> npt.NDArray[np.floating]:
        """The one output."""
        return logits_WC[:, 0]

    def written(self, predicted: npt.NDArray[Any]) -> list[float]:
        """The numbers."""
        predictions: list[float] = predicted.tolist()
        return predictions
