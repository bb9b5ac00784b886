"""Permutation language modelling (XLNet, Yang et al. 2019, 1906.08237, 2.2 and 2.3): a random order of prediction."""

# B batch, N length, P positions to predict

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from experiments.objectives.objective import Batch, Vocabulary
from experiments.settings import objective as settings

# parts these random numbers from others that are keyed by the same seed and step
STREAM = int.from_bytes(b"perm", "big")


class Objective:
    """The tokens of each sequence that are not special are put in a random order, whose last 1/K is predicted.

    `order` [B, N] is 1, 2, ... of the predicted positions in their order, 0 of all others, which are given: what
    stands at j is known where i is predicted if order(j) < order(i). That is the authors' code (zihangdai/xlnet,
    data_utils.py, _local_perm), where positions that are not predicted also know each other; it takes spans of tokens
    where the paper's equation 4, and this, take single ones.
    """

    assembly: ClassVar[str] = "permutation"
    lengths_vary: ClassVar[bool] = False

    def __init__(self, chosen: settings.Permutation, vocabulary: Vocabulary) -> None:
        self.chosen, self.vocabulary = chosen, vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """A pure function of its arguments. ValueError: a batch of nothing but special tokens."""
        ordinary = ~np.isin(tokens_BN, list(self.vocabulary.special))
        if not ordinary.any():
            raise ValueError("a batch of special tokens only: there is nothing to predict")
        random = np.random.Generator(np.random.Philox(key=np.array([STREAM << 32 | seed, step], dtype=np.uint64)))
        # the given ones first: special tokens are before every draw
        drawn = np.where(ordinary, random.random(tokens_BN.shape), -1.0)
        place = drawn.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        found = ordinary.sum(axis=1)
        predicted = np.where(found > 0, np.maximum(1, np.rint(found / self.chosen.predict)), 0).astype(np.int64)
        given = tokens_BN.shape[1] - predicted
        order = np.maximum(place - given[:, None] + 1, 0)
        rows = np.flatnonzero(order)
        tokens = torch.from_numpy(tokens_BN.astype(np.int64))
        inputs = {"tokens": tokens, "order": torch.from_numpy(order)}
        positions = torch.from_numpy(rows)
        return Batch(inputs, positions, tokens.flatten()[positions], tokens_BN.shape[1])

    @property
    def evaluation_seed(self) -> int:
        return self.chosen.evaluation_seed

    @property
    def predicted_share(self) -> float:
        return 1 / self.chosen.predict
