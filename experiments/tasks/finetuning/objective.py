"""What a task asks of a model: rows of features become batches, and logits become scores and predictions."""

# B windows, N tokens of a window, P targets, C labels

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from experiments.objectives.objective import Batch, Scores, Vocabulary
from experiments.settings.finetuning import Benchmark, Classification, Regression, Span
from experiments.tasks.finetuning.answers import answer_texts
from experiments.tasks.finetuning.features import Features
from experiments.tasks.finetuning.scores import score
from experiments.tasks.finetuning.squad import squad_scores

STEP = 8  # a batch is as long as its longest window, rounded up to a multiple: few shapes, little padding


class FinetuningObjective:
    """Two positions for each window of a span (where the answer begins, where it ends), else one label or number."""

    lengths_vary = True
    evaluation_seed = 0

    def __init__(
        self, task: Benchmark, length: int, token_types: bool, features: Features | None, vocabulary: Vocabulary
    ) -> None:
        self.task, self.length, self.token_types, self.features = task, length, token_types, features
        self.vocabulary = vocabulary

    @property
    def predicted_share(self) -> float:
        """1 for spans, where every token has logits; for a label one position of N."""
        return 1.0 if self.task.outputs is None else 1 / self.length

    def batch(self, rows: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """A batch of rows of features; rows of N tokens, where only shapes matter, count as windows without padding."""
        if rows.shape[1] == self.length:
            rest = np.zeros((len(rows), 1 + self.task.targets), dtype=np.int64)
            rows = np.column_stack([rows, np.full(len(rows), self.length), rest])
        count_B, boundary_B, targets_BT = rows[:, self.length], rows[:, self.length + 1], rows[:, self.length + 2 :]
        width = min(self.length, -(-int(count_B.max()) // STEP) * STEP)
        position_N = np.arange(width)
        mask_BN = position_N < count_B[:, None]
        inputs = {"tokens": rows[:, :width].astype(np.int64), "mask": mask_BN}
        if self.token_types:
            inputs["token_types"] = ((position_N >= boundary_B[:, None]) & mask_BN).astype(np.int64)
        asked_BT = np.arange(len(rows))[:, None] * width + np.arange(targets_BT.shape[1])
        return Batch(
            {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()},
            torch.from_numpy(asked_BT.reshape(-1)),
            torch.from_numpy(self.targets(targets_BT)),
            width,
            int(mask_BN.sum()),
        )

    def targets(self, stored: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        """int64 [P], or the float32 that the stored bits are."""
        flat = np.ascontiguousarray(stored).reshape(-1)
        return flat.astype(np.int32).view(np.float32) if isinstance(self.task, Regression) else flat.astype(np.int64)

    def scores(self, logits: list[npt.NDArray[np.floating]]) -> Scores:
        """Scores of the logits [P, C] of every batch of the validation split, in its order."""
        assert self.features is not None
        if isinstance(self.task, Span):
            return self._span_scores(self.task, self.features, logits)
        return self._label_scores(self.task, self.features, np.concatenate(logits))

    def _span_scores(self, task: Span, features: Features, logits: list[npt.NDArray[np.floating]]) -> Scores:
        assert features.questions is not None
        # batches differ in their width
        wide = [np.pad(each, ((0, 0), (0, self.length - each.shape[1])), constant_values=-np.inf) for each in logits]
        both = np.concatenate(wide).reshape(-1, 2, self.length)
        known = features.questions.read()
        predicted = answer_texts(both[:, 0], both[:, 1], features.questions, known, task)
        answers = {str(question["id"]): question["answers"] for question in known}
        return Scores(squad_scores(answers, predicted), predicted)

    def _label_scores(
        self, task: Classification | Regression, features: Features, logits: npt.NDArray[np.floating]
    ) -> Scores:
        true = self.targets(features.validation[:, self.length + 2 :])
        predicted: npt.NDArray[Any] = logits.argmax(1) if isinstance(task, Classification) else logits[:, 0]
        scores: dict[str, float] = {}
        told: dict[str, Any] = {}
        for name, part in features.parts.items():
            for metric in task.metrics:
                scores[f"{metric}_{name}" if name else metric] = score(metric, predicted[part], true[part])
            values = predicted[part].tolist()
            told[name] = [task.labels[each] for each in values] if isinstance(task, Classification) else values
        return Scores(scores, told.get("", told))
