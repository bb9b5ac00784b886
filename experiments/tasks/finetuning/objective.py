"""What a task asks of a model: rows of features become batches, and logits become scores and predictions."""

# B windows, N tokens of a window, P targets, C labels

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from experiments.objectives.objective import Batch, Scores, Vocabulary
from experiments.settings.finetuning import Benchmark
from experiments.tasks.finetuning.features import Features
from experiments.tasks.finetuning.kind import HeldOut, kind_of

STEP = 8  # a batch is as long as its longest window, rounded up to a multiple: few shapes, little padding


class FinetuningObjective:
    """Two positions for each window of a span (where the answer begins, where it ends), else one label or number."""

    lengths_vary = True
    evaluation_seed = 0

    def __init__(
        self,
        task: Benchmark,
        length: int,
        features: Features | None,
        vocabulary: Vocabulary,
        *,
        token_types: bool,
        causal: bool,
    ) -> None:
        self.task, self.length, self.features, self.vocabulary = task, length, features, vocabulary
        self.token_types, self.causal = token_types, causal
        self.kind = kind_of(task)

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
        # of a causal model only the last token has seen the whole window
        reads_last = self.causal and self.task.outputs is not None
        place_BT = count_B[:, None] - 1 if reads_last else np.arange(targets_BT.shape[1])
        positions_BT = np.arange(len(rows))[:, None] * width + place_BT
        return Batch(
            {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()},
            torch.from_numpy(positions_BT.reshape(-1)),
            torch.from_numpy(self.kind.targets(targets_BT)),
            width,
            int(mask_BN.sum()),
        )

    def scores(self, logits: list[npt.NDArray[np.floating]]) -> Scores:
        """Scores of the logits [P, C] of every batch of the validation splits, in their order."""
        assert self.features is not None
        features, targets = self.features, self.features.validation[:, self.length + 2 :]
        return self.kind.scores(logits, HeldOut(targets, features.parts, self.length, features.folder))
