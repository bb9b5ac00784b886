"""What a run is trained to predict: one class a kind of objective."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.settings.group import Count, Group, NonNegative, Seed, Share, Size


class ObjectiveSettings(Group):
    """What an objective asks of the data, whatever its kind; lengths in tokens."""

    reads_targets: ClassVar[bool] = True  # the model is given what it predicts, hidden by what may attend to it
    encodes: ClassVar[bool] = False  # it trains an encoder, where every position attends to the whole text
    reads_pairs: ClassVar[bool] = False  # its data are pairs, of a source and a target sentence

    def row_length(self, length: int) -> int:
        """Of a row of the packed data, for sequences of `length`."""
        return length

    def tokens_read(self, length: int) -> int | None:
        """That the model reads of a row, padding apart; None: as many as the text has."""
        return length

    def sentinel_count(self) -> int:
        """Special tokens that the vocabulary has for it."""
        return 0

    def without_generation(self) -> ObjectiveSettings:
        """The same objective in a run that, when it ends, is scored by its loss alone and generates no text."""
        return self


class Masking(ObjectiveSettings):
    """Which tokens are predicted, and what stands in their place: 80% [MASK], 10% random, 10% kept in BERT."""

    reads_targets: ClassVar[bool] = False
    encodes: ClassVar[bool] = True
    rate: Annotated[float, Field(gt=0, lt=1)]  # share of the positions to predict
    mask_share: Share  # of those: replaced by [MASK]
    random_share: Share  # of those: replaced by a random token; the rest is kept
    evaluation_seed: Seed  # of the fixed evaluation masks, the same for every run

    @model_validator(mode="after")
    def _shares(self) -> Masking:
        if self.mask_share + self.random_share > 1:
            raise ValueError(
                f"mask_share {self.mask_share} and random_share {self.random_share} are more than 1 together"
            )
        return self


class Masked(Masking):
    """Masked-token prediction (Devlin et al. 2019)."""

    kind: Literal["masked"]


class MaskedSop(Masking):
    """ALBERT's (Lan et al. 2020): masked tokens, and whether two segments of a document are in their order."""

    kind: Literal["masked_sop"]

    def tokens_read(self, length: int) -> None:
        """As many as the longest part of a document in the row."""


class Causal(ObjectiveSettings):
    """Prediction of the next token from those before it (Radford et al. 2019)."""

    kind: Literal["causal"]


class Permutation(ObjectiveSettings):
    """XLNet's (Yang et al. 2019): tokens predicted one after another in a random order, from all that are known."""

    encodes: ClassVar[bool] = True
    kind: Literal["permutation"]
    predict: Annotated[int, Field(ge=1)]  # K: the last 1/K of the order is predicted
    evaluation_seed: Seed  # of the fixed evaluation orders, the same for every run


class SpanCorruption(ObjectiveSettings):
    """T5's (Raffel et al. 2020): spans are taken out of the text, each for a sentinel, and predicted one after another.

    Inputs are the text with a sentinel for each span, targets each sentinel and its span; both end with [SEP].
    """

    kind: Literal["span_corruption"]
    rate: Annotated[float, Field(gt=0, lt=1)]  # share of the tokens that are taken out
    mean_span: Annotated[float, Field(ge=1, allow_inf_nan=False)]  # tokens
    sentinels: Size  # special tokens <extra_id_0>, <extra_id_1>, ...: at least one for each span of a sequence
    evaluation_seed: Seed  # of the fixed evaluation spans, the same for every run

    def spans(self, tokens: int) -> tuple[int, int]:
        """(tokens taken out, spans) of a text of so many tokens, at least one of either."""
        taken = min(max(round(tokens * self.rate), 1), tokens - 1)
        return taken, min(max(round(taken / self.mean_span), 1), taken, tokens - taken)

    def lengths(self, tokens: int) -> tuple[int, int]:
        """(inputs, targets) of a text of so many tokens."""
        taken, spans = self.spans(tokens)
        return tokens - taken + spans + 1, taken + spans + 1

    def text_length(self, length: int) -> int:
        """Of the longest text with inputs of at most `length`: 568 for T5's 512."""
        tokens = 2
        while self.lengths(tokens + 1)[0] <= length:
            tokens += 1
        return tokens

    def row_length(self, length: int) -> int:
        """A row begins with [CLS], which is no part of the text."""
        return self.text_length(length) + 1

    def tokens_read(self, length: int) -> int:
        return sum(self.lengths(self.text_length(length)))

    def sentinel_count(self) -> int:
        return self.sentinels


class Translation(ObjectiveSettings):
    """The target sentence from the source sentence and the target's tokens so far (Vaswani et al. 2017)."""

    reads_pairs: ClassVar[bool] = True
    kind: Literal["translation"]
    beam: Size  # hypotheses of the beam search; 1 with length_penalty 0 is greedy
    length_penalty: NonNegative  # alpha of ((5 + tokens) / 6)^alpha, by which a hypothesis' log likelihood is divided
    bleu_pairs: Count | None  # so many pairs of the validation split are translated when the run ends; null: all

    def row_length(self, length: int) -> int:
        """A sentence of each language."""
        return 2 * length

    def tokens_read(self, length: int) -> None:
        """Only the sentences themselves say how many."""

    def without_generation(self) -> Translation:
        """No pair of the validation split is translated for BLEU."""
        return self.model_copy(update={"bleu_pairs": 0})


Objective = Annotated[
    Masked | MaskedSop | Causal | Permutation | SpanCorruption | Translation, Field(discriminator="kind")
]
