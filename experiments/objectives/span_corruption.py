"""Span corruption (Raffel et al. 2020, 1910.10683, 3.1.4): spans are taken out of the text and predicted in turn."""

# B batch, R tokens of the text, S spans, N inputs, M targets

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from experiments.objectives.objective import Batch, Vocabulary
from experiments.settings import objective as settings

# parts these random numbers from others that are keyed by the same seed and step
STREAM = int.from_bytes(b"span", "big")


class Objective:
    """`rate` of the tokens in spans of random lengths, `mean_span` on average, as `random_spans_noise_mask` of T5.

        text     Thank you for inviting me to your party last week
        inputs   Thank you <extra_id_0> me to your party <extra_id_1> week [SEP]
        targets  <extra_id_0> for inviting <extra_id_1> last [SEP]

    Every target is predicted, sentinels and [SEP] included, each from the inputs and the targets before it; before the
    first stands [CLS].
    """

    assembly: ClassVar[str] = "encoder_decoder"
    lengths_vary: ClassVar[bool] = False

    def __init__(self, chosen: settings.SpanCorruption, vocabulary: Vocabulary) -> None:
        self.chosen, self.vocabulary = chosen, vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """A pure function of its arguments; the first token of a row, [CLS], is no part of the text."""
        text_BR = tokens_BN[:, 1:].astype(np.int64)
        random = np.random.Generator(np.random.Philox(key=np.array([STREAM << 32 | seed, step], dtype=np.uint64)))
        taken, count = self.chosen.spans(text_BR.shape[1])
        taken_BR = corrupted(random, text_BR.shape, taken, count)
        inputs_BN, targets_BM = self.collapsed(text_BR, taken_BR), self.collapsed(text_BR, ~taken_BR)
        shifted_BM = np.roll(targets_BM, 1, axis=1)
        shifted_BM[:, 0] = self.vocabulary.cls_id
        inputs = {"tokens": torch.from_numpy(inputs_BN), "decoder_tokens": torch.from_numpy(shifted_BM)}
        read = inputs_BN.size + targets_BM.size
        targets = torch.from_numpy(targets_BM.reshape(-1))
        return Batch(inputs, torch.arange(len(targets)), targets, targets_BM.shape[1], read)

    def collapsed(self, text_BR: npt.NDArray[np.int64], away_BR: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The text with a sentinel for each run of what is away, and [SEP]; as many tokens in each row.

        Raises ValueError where there are more runs than sentinels.
        """
        first_BR = away_BR & ~np.pad(away_BR[:, :-1], ((0, 0), (1, 0)))
        sentinels = np.array(self.vocabulary.sentinel_ids, dtype=np.int64)
        runs = int(first_BR[0].sum())
        if runs > len(sentinels):
            raise ValueError(f"objective.sentinels={len(sentinels)}: {runs} spans need one each")
        collapsed_BR = text_BR.copy()
        collapsed_BR[first_BR] = np.tile(sentinels[:runs], len(text_BR))
        kept = collapsed_BR[~away_BR | first_BR].reshape(len(text_BR), -1)
        return np.pad(kept, ((0, 0), (0, 1)), constant_values=self.vocabulary.sep_id)

    @property
    def evaluation_seed(self) -> int:
        return self.chosen.evaluation_seed

    @property
    def predicted_share(self) -> float:
        """Of inputs and targets together, in a long text; in a short one up to rounding."""
        spans = self.chosen.rate / self.chosen.mean_span
        return (self.chosen.rate + spans) / (1 + 2 * spans)


def corrupted(random: np.random.Generator, shape: tuple[int, ...], taken: int, count: int) -> npt.NDArray[np.bool_]:
    """Of shape [B, R], True where a token is taken out: `taken` of them in `count` spans, each after one that is kept.

    A row begins with a token that is kept and ends with a span. The lengths of the spans, and of what is between them,
    are each a partition of their total drawn evenly from all into so many parts.
    """
    rows, tokens = shape
    lengths = np.empty((rows, 2 * count), dtype=np.int64)
    lengths[:, 0::2] = partitions(random, rows, tokens - taken, count)
    lengths[:, 1::2] = partitions(random, rows, taken, count)
    begins = np.zeros(shape, dtype=np.int64)
    np.put_along_axis(begins, lengths.cumsum(1)[:, :-1], 1, axis=1)
    return begins.cumsum(1) % 2 == 1


def partitions(random: np.random.Generator, rows: int, total: int, parts: int) -> npt.NDArray[np.int64]:
    """[rows, parts] of numbers from 1 on, whose sums are `total`."""
    cuts = np.sort(random.random((rows, total - 1)).argsort(axis=1)[:, : parts - 1] + 1, axis=1)
    return np.diff(cuts, axis=1, prepend=0, append=total)
