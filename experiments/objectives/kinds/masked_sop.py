"""ALBERT's two tasks (Lan et al. 2020, 1909.11942, 3.1): masked tokens, and the order of two segments of a document."""

# B batch, N length, S segments' tokens

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from experiments.objectives.kinds.masked import MaskedObjective, Masking
from experiments.objectives.objective import Batch, Vocabulary
from experiments.objectives.step_random import step_random
from experiments.settings.mistake import Mistake

SWAPPED_LABEL = 1  # the label, as Hugging Face has it


class MaskedSop(Masking):
    """Prediction of masked tokens, and of whether two segments of a document were swapped."""

    architecture: ClassVar[str] = "sentence_order_encoder"
    pads: ClassVar[bool] = True
    kind: Literal["masked_sop"]

    def build(self, vocabulary: Vocabulary) -> MaskedSopObjective:
        """The objective for a vocabulary."""
        return MaskedSopObjective(self, vocabulary)


class MaskedSopObjective(MaskedObjective):
    """Sequences [CLS] first [SEP] second [SEP], in half of them second before first; tokens are masked as in `masked`.

    The segments are what a row of the packed corpus has of one document: the longest stretch of tokens between two
    [SEP], or an end of the row, cut to N - 3 tokens, and parted at a position of which each is as likely. What is left
    of N is padding. A row without two tokens of a document in a row gives no sequence.

    The label is 1 for segments that are swapped, else 0. The loss is the mean over masked tokens plus the mean over
    sequences, so that neither depends on how many there are of the other.
    """

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """A pure function of its arguments. Mistake: rows without two tokens of a document in a row."""
        length = tokens_BN.shape[1]
        texts = [text for row in tokens_BN if len(text := self.longest_text(row)[: length - 3]) > 1]
        if not texts:
            raise Mistake("a batch without two tokens of a document in a row: there are no segments to order")
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
        """The longest stretch [S] of the row without [SEP], the first of several, without the row's [CLS]."""
        row = row_N.astype(np.int64)
        row = row[1:] if row[0] == self.vocabulary.cls_id else row
        ends = np.flatnonzero(np.append(row, self.vocabulary.sep_id) == self.vocabulary.sep_id)
        starts = np.append(0, ends[:-1] + 1)
        longest = (ends - starts).argmax()
        return row[starts[longest] : ends[longest]]
