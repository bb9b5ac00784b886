"""ALBERT's two tasks (Lan et al. 2020, 1909.11942, 3.1): masked tokens, and the order of two segments of a document."""

# B batch, N length, S tokens of both segments

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from experiments.objectives.kinds.masked import MaskedObjective, Masking
from experiments.objectives.objective import Batch, Vocabulary
from experiments.objectives.step_random import step_random

SWAPPED_LABEL = 1  # as in Hugging Face's models


class MaskedSop(Masking):
    """Prediction of masked tokens, and of whether two segments of a document were swapped."""

    architecture: ClassVar[str] = "sentence_order_encoder"
    pads: ClassVar[bool] = True
    kind: Literal["masked_sop"]

    def measured(self) -> list[str]:
        """How well the order of the segments is predicted."""
        return ["order_loss", "order_accuracy"]

    def build(self, vocabulary: Vocabulary) -> MaskedSopObjective:
        """The objective for a vocabulary."""
        return MaskedSopObjective(self, vocabulary)


class MaskedSopObjective(MaskedObjective):
    """Sequences [CLS] first [SEP] second [SEP], with the segments swapped in half of them; tokens are masked as usual.

    The two segments come from one document in a row of the packed corpus. They are the longest run of tokens without
    [SEP] in the row, cut to N - 3 tokens, and split at a uniformly random position. The rest of N is padding. A row in
    which no document has two tokens in a row gives no sequence.

    The label is 1 if the segments are swapped, else 0. The loss is the mean over masked tokens plus the mean over
    sequences, so neither depends on the number of the other.
    """

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, a pure function of the arguments."""
        length = tokens_BN.shape[1]
        texts = [text for row in tokens_BN if len(text := self.longest_text(row)[: length - 3]) > 1]
        random = step_random(b"swap", seed, step)
        swapped = random.random(len(texts)) < 0.5
        parting = 1 + (random.random(len(texts)) * [len(text) - 1 for text in texts]).astype(np.int64)
        tokens = np.full((len(texts), length), self.vocabulary.pad_id)
        types = np.zeros_like(tokens)
        for row, (text, at, swap) in enumerate(zip(texts, parting, swapped, strict=True)):
            first, second = (text[at:], text[:at]) if swap else (text[:at], text[at:])
            end, size = len(first) + 2, len(text) + 3
            tokens[row, 0] = self.vocabulary.cls_id
            tokens[row, 1 : end - 1], tokens[row, end : size - 1] = first, second
            tokens[row, [end - 1, size - 1]] = self.vocabulary.sep_id
            types[row, end:size] = 1
        mask = np.arange(length) < np.array([len(text) + 3 for text in texts])[:, None]
        hidden, positions, targets = self.mask_tokens(tokens, seed, step)
        inputs = {"tokens": hidden, "token_types": types, "mask": mask}
        labels = np.where(swapped, SWAPPED_LABEL, 1 - SWAPPED_LABEL)
        return Batch.of_arrays(inputs, positions, targets, length, int(mask.sum()), labels)

    def longest_text(self, row_N: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """The longest run [S] of the row without [SEP] and without the row's [CLS]; the first if there are several."""
        row = row_N.astype(np.int64)
        row = row[1:] if row[0] == self.vocabulary.cls_id else row
        ends = np.flatnonzero(np.append(row, self.vocabulary.sep_id) == self.vocabulary.sep_id)
        starts = np.append(0, ends[:-1] + 1)
        longest = (ends - starts).argmax()
        return row[starts[longest] : ends[longest]]
