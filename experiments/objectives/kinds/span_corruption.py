"""Span corruption (Raffel et al. 2020, 1910.10683, 3.1.4): spans are removed from the text and predicted in turn."""

# B batch, R tokens of the text, S spans, N inputs, M targets

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from experiments.failures.failure import Mistake
from experiments.objectives.objective import Batch, ObjectiveKind, Vocabulary
from experiments.objectives.step_random import step_random
from experiments.settings.group import Seed, Size


class SpanCorruption(ObjectiveKind):
    """Prediction of the spans of the text that sentinels replace, one after another.

    Inputs are the text with a sentinel for each span, targets each sentinel and its span; both end with [SEP].
    """

    architecture: ClassVar[str] = "encoder_decoder"
    kind: Literal["span_corruption"]
    # at most 0.9, because the text of a row is 1 / (1 - rate) times as long as its inputs
    rate: Annotated[float, Field(gt=0, le=0.9)]  # share of the tokens that are removed
    mean_span: Annotated[float, Field(ge=1, allow_inf_nan=False)]  # mean length of a span, in tokens
    sentinels: Size  # special tokens <extra_id_0>, <extra_id_1>, ...: at least one for each span of a sequence
    evaluation_seed: Seed  # seed of the evaluation spans, the same for every run

    def build(self, vocabulary: Vocabulary) -> SpanCorruptionObjective:
        """The objective for a vocabulary."""
        return SpanCorruptionObjective(self, vocabulary)

    def span_counts(self, tokens: int) -> tuple[int, int]:
        """(removed tokens, spans) in a text of `tokens` tokens; at least one of each."""
        taken = min(max(round(tokens * self.rate), 1), tokens - 1)
        return taken, min(max(round(taken / self.mean_span), 1), taken, tokens - taken)

    def input_and_target_lengths(self, tokens: int) -> tuple[int, int]:
        """(inputs, targets): how many tokens each has for a text of `tokens` tokens."""
        taken, spans = self.span_counts(tokens)
        return tokens - taken + spans + 1, taken + spans + 1

    def text_length(self, length: int) -> int:
        """Tokens of the longest text whose inputs have at most `length` tokens: 568 for T5's 512."""
        tokens = 2
        while self.input_and_target_lengths(tokens + 1)[0] <= length:
            tokens += 1
        return tokens

    def row_length(self, length: int) -> int:
        """Tokens of a row: the text, and the [CLS] before it, which is not part of the text."""
        return self.text_length(length) + 1

    def tokens_read(self, length: int) -> int:
        """Tokens of inputs and targets together, which are the same in every row."""
        return sum(self.input_and_target_lengths(self.text_length(length)))

    def sentinel_count(self) -> int:
        """The number of sentinels that the tokenizer needs."""
        return self.sentinels

    def check(self, length: int) -> None:
        """Raise ValueError if a sequence has more spans than there are sentinels."""
        _, spans = self.span_counts(self.text_length(length))
        if spans > self.sentinels:
            raise ValueError(
                f"objective.sentinels = {self.sentinels}: length={length} has {spans} spans, "
                "and each needs its own sentinel"
            )


class SpanCorruptionObjective:
    """Removes the share `rate` of the tokens in spans of random lengths, like T5's `random_spans_noise_mask`.

        text     Thank you for inviting me to your party last week
        inputs   Thank you <extra_id_0> me to your party <extra_id_1> week [SEP]
        targets  <extra_id_0> for inviting <extra_id_1> last [SEP]

    The mean length of a span is `mean_span`. Every target is predicted, including sentinels and [SEP], from the inputs
    and from the targets before it. The decoder reads [CLS] before the first target.
    """

    lengths_vary = False

    def __init__(self, settings: SpanCorruption, vocabulary: Vocabulary) -> None:
        self.settings, self.vocabulary = settings, vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, a pure function of the arguments. The first token of a row, [CLS], is not part of the text."""
        text_BR = tokens_BN[:, 1:].astype(np.int64)
        random = step_random(b"span", seed, step)
        taken, count = self.settings.span_counts(text_BR.shape[1])
        masked_BR = random_span_mask(random, text_BR.shape, taken, count)
        inputs_BN, targets_BM = self.with_sentinels(text_BR, masked_BR), self.with_sentinels(text_BR, ~masked_BR)
        shifted_BM = np.roll(targets_BM, 1, axis=1)
        shifted_BM[:, 0] = self.vocabulary.cls_id
        inputs = {"tokens": inputs_BN, "decoder_tokens": shifted_BM}
        targets = targets_BM.reshape(-1)
        return Batch.of_arrays(
            inputs, np.arange(len(targets)), targets, targets_BM.shape[1], inputs_BN.size + targets_BM.size
        )

    def with_sentinels(self, text_BR: npt.NDArray[np.int64], masked_BR: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The text with a sentinel in place of each run of masked tokens, and a [SEP]; all rows are equally long.

        Raises Mistake if there are more runs than sentinels.
        """
        first_BR = masked_BR & ~np.pad(masked_BR[:, :-1], ((0, 0), (1, 0)))
        sentinels = np.array(self.vocabulary.sentinel_ids, dtype=np.int64)
        runs = int(first_BR[0].sum())
        if runs > len(sentinels):
            raise Mistake(f"objective.sentinels={len(sentinels)}: {runs} spans need a sentinel each")
        collapsed_BR = text_BR.copy()
        collapsed_BR[first_BR] = np.tile(sentinels[:runs], len(text_BR))
        shortened = collapsed_BR[~masked_BR | first_BR].reshape(len(text_BR), -1)
        return np.pad(shortened, ((0, 0), (0, 1)), constant_values=self.vocabulary.sep_id)

    @property
    def evaluation_seed(self) -> int:
        """The seed of the fixed evaluation spans."""
        return self.settings.evaluation_seed

    @property
    def predicted_share(self) -> float:
        """The targets as a share of inputs and targets together; for short texts this is only approximate."""
        spans = self.settings.rate / self.settings.mean_span
        return (self.settings.rate + spans) / (1 + 2 * spans)


def random_span_mask(
    random: np.random.Generator, shape: tuple[int, ...], taken: int, count: int
) -> npt.NDArray[np.bool_]:
    """Bool [B, R], True where a token is removed: `taken` tokens in `count` spans with at least one token between them.

    A row begins with a token that is kept, and ends with a span. The lengths of the spans are drawn uniformly from all
    partitions of `taken` into `count` parts, and so are the lengths of the parts between them.
    """
    rows, tokens = shape
    lengths = np.empty((rows, 2 * count), dtype=np.int64)
    lengths[:, 0::2] = random_partitions(random, rows, tokens - taken, count)
    lengths[:, 1::2] = random_partitions(random, rows, taken, count)
    begins = np.zeros(shape, dtype=np.int64)
    np.put_along_axis(begins, lengths.cumsum(1)[:, :-1], 1, axis=1)
    return begins.cumsum(1) % 2 == 1


def random_partitions(random: np.random.Generator, rows: int, total: int, parts: int) -> npt.NDArray[np.int64]:
    """Random whole numbers [rows, parts], at least 1, that add up to `total` in each row."""
    cuts = np.sort(random.random((rows, total - 1)).argsort(axis=1)[:, : parts - 1] + 1, axis=1)
    return np.diff(cuts, axis=1, prepend=0, append=total)
