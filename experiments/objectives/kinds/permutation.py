"""Permutation language modelling (XLNet, Yang et al. 2019, 1906.08237, 2.2 and 2.3): prediction in a random order."""

# B batch, N length, P positions to predict

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from experiments.objectives.objective import Batch, ObjectiveKind, Vocabulary
from experiments.objectives.step_random import step_random
from experiments.settings.group import Seed


class Permutation(ObjectiveKind):
    """Prediction of tokens in a random order, each from the given tokens and those predicted before it."""

    architecture: ClassVar[str] = "two_stream_encoder"
    kind: Literal["permutation"]
    predict: Annotated[int, Field(ge=1)]  # K; the last 1/K of the order is predicted
    evaluation_seed: Seed  # seed of the evaluation orders, the same for every run

    def build(self, vocabulary: Vocabulary) -> PermutationObjective:
        """The objective for a vocabulary."""
        return PermutationObjective(self, vocabulary)


class PermutationObjective:
    """Puts the tokens of each sequence that are not special in a random order, and predicts the last 1/K of them.

    `order` [B, N] is 1, 2, ... for the predicted positions in their order, and 0 for all others, which are given. The
    token at j is known when i is predicted if order(j) < order(i). As in the authors' code (zihangdai/xlnet,
    data_utils.py, _local_perm), positions that are not predicted also know each other. The authors' code predicts spans
    of tokens; this predicts single tokens, as in the paper's equation 4.
    """

    lengths_vary = False

    def __init__(self, settings: Permutation, vocabulary: Vocabulary) -> None:
        self.settings, self.vocabulary = settings, vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """The batch, a pure function of the arguments."""
        ordinary = ~np.isin(tokens_BN, list(self.vocabulary.special))
        random = step_random(b"perm", seed, step)
        # -1 puts the special tokens first, so that they are given
        drawn = np.where(ordinary, random.random(tokens_BN.shape), -1.0)
        place = drawn.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        count = ordinary.sum(axis=1)
        predicted = np.where(count > 0, np.maximum(1, np.rint(count / self.settings.predict)), 0).astype(np.int64)
        known = tokens_BN.shape[1] - predicted
        order = np.maximum(place - known[:, None] + 1, 0)
        positions = np.flatnonzero(order)
        tokens = tokens_BN.astype(np.int64)
        return Batch.of_arrays(
            {"tokens": tokens, "order": order}, positions, tokens.reshape(-1)[positions], tokens.shape[1]
        )

    @property
    def evaluation_seed(self) -> int:
        """The seed of the fixed evaluation orders."""
        return self.settings.evaluation_seed

    @property
    def predicted_share(self) -> float:
        """1 / K; because of special tokens it is slightly lower."""
        return 1 / self.settings.predict
