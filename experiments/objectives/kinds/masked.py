"""Masked-token prediction (Devlin et al. 2019, 1810.04805, 3.1): choose positions, hide their tokens, predict them."""

# B batch, N length, P positions to predict

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from experiments.failures.failure import Mistake
from experiments.objectives.objective import Batch, ObjectiveKind, Vocabulary
from experiments.objectives.step_random import step_random
from experiments.settings.group import Seed, Share

Ids = npt.NDArray[np.int64]


class Masking(ObjectiveKind):
    """The predicted tokens and their replacements: in BERT 80% [MASK], 10% random, 10% unchanged."""

    reads_targets: ClassVar[bool] = False
    rate: Annotated[float, Field(gt=0, lt=1)]  # share of the positions to predict
    mask_share: Share  # share of these positions that become [MASK]
    random_share: Share  # share of these positions that become a random token; the rest is unchanged
    evaluation_seed: Seed  # seed of the evaluation masks, the same for every run

    @model_validator(mode="after")
    def _shares(self) -> Masking:
        if self.mask_share + self.random_share > 1:
            raise ValueError(
                f"mask_share {self.mask_share} and random_share {self.random_share} are more than 1 together"
            )
        return self


class Masked(Masking):
    """Masked-token prediction."""

    architecture: ClassVar[str] = "encoder"
    kind: Literal["masked"]

    def build(self, vocabulary: Vocabulary) -> MaskedObjective:
        """The objective for a vocabulary."""
        return MaskedObjective(self, vocabulary)


class MaskedObjective:
    """Chooses the share `rate` of the tokens that are not special, rounded, and at least one where there is one.

    Each chosen token becomes [MASK] with probability `mask_share`, and a random token that is not special with
    probability `random_share`. Otherwise it is left unchanged.
    """

    lengths_vary = False

    def __init__(self, settings: Masking, vocabulary: Vocabulary) -> None:
        if vocabulary.mask_id is None:
            raise Mistake(
                f"objective={settings.kind}: the tokenizer has no [MASK] or <mask>, which stands for what is hidden"
            )
        self.settings, self.vocabulary, self.mask_id = settings, vocabulary, vocabulary.mask_id

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, a pure function of the arguments."""
        hidden_BN, positions, targets = self.mask_tokens(tokens_BN, seed, step)
        return Batch.of_arrays({"tokens": hidden_BN}, positions, targets, tokens_BN.shape[1])

    def mask_tokens(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> tuple[Ids, Ids, Ids]:
        """The tokens [B, N] with some of them hidden, the positions [P] of these, and the original tokens [P]."""
        settings, special = self.settings, self.vocabulary.special
        flat = tokens_BN.reshape(-1).astype(np.int64)
        candidates = np.flatnonzero(~np.isin(flat, list(special)))
        random = step_random(b"mask", seed, step)
        count = min(max(1, round(settings.rate * candidates.size)), candidates.size)
        positions = np.sort(random.choice(candidates, count, replace=False, shuffle=False))
        targets = flat[positions]
        draw = random.random(count)
        replacement = random_tokens(random, count, special, self.vocabulary.vocabulary_size)
        replacement = np.where(draw < settings.mask_share + settings.random_share, replacement, targets)
        flat[positions] = np.where(draw < settings.mask_share, self.mask_id, replacement)
        return flat.reshape(tokens_BN.shape), positions, targets

    @property
    def evaluation_seed(self) -> int:
        """The seed of the fixed evaluation masks."""
        return self.settings.evaluation_seed

    @property
    def predicted_share(self) -> float:
        """The share of tokens that are chosen; because of special tokens it is slightly lower."""
        return self.settings.rate


def random_tokens(random: np.random.Generator, count: int, special: frozenset[int], vocabulary_size: int) -> Ids:
    """Draw tokens, int64 [count], uniformly from the vocabulary without the special tokens."""
    drawn = random.integers(vocabulary_size - len(special), size=count)
    for token in sorted(special):
        drawn += drawn >= token
    return drawn
