"""Masked-token prediction (Devlin et al. 2019, 1810.04805, 3.1): choose positions, hide their tokens, predict them."""

# B batch, N length, P positions to predict

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from experiments.objectives.objective import Batch, Vocabulary
from experiments.settings import objective as settings

# parts these random numbers from others that are keyed by the same seed and step
STREAM = int.from_bytes(b"mask", "big")


class Objective:
    """`rate` of the tokens that are not special, rounded and at least one.

    Each chosen token becomes [MASK] with probability `mask_share`, a token drawn from all that are not special with
    probability `random_share`, and is kept otherwise.
    """

    assembly: ClassVar[str] = "encoder"
    lengths_vary: ClassVar[bool] = False

    def __init__(self, chosen: settings.Masking, vocabulary: Vocabulary) -> None:
        self.chosen, self.vocabulary = chosen, vocabulary

    def batch(self, tokens_BN: npt.NDArray[np.integer], seed: int, step: int) -> Batch:
        """A pure function of its arguments. ValueError: a batch of nothing but special tokens."""
        chosen, special = self.chosen, self.vocabulary.special
        flat = tokens_BN.reshape(-1).astype(np.int64)
        candidates = np.flatnonzero(~np.isin(flat, list(special)))
        if not candidates.size:
            raise ValueError("a batch of special tokens only: there is nothing to mask")
        random = np.random.Generator(np.random.Philox(key=np.array([STREAM << 32 | seed, step], dtype=np.uint64)))
        count = max(1, round(chosen.rate * candidates.size))
        rows = np.sort(random.choice(candidates, count, replace=False, shuffle=False))
        targets = flat[rows]
        role = random.random(count)
        replacement = random_tokens(random, count, special, self.vocabulary.vocabulary_size)
        replacement = np.where(role < chosen.mask_share + chosen.random_share, replacement, targets)
        flat[rows] = np.where(role < chosen.mask_share, self.vocabulary.mask_id, replacement)
        hidden = torch.from_numpy(flat.reshape(tokens_BN.shape))
        return Batch({"tokens": hidden}, torch.from_numpy(rows), torch.from_numpy(targets), tokens_BN.shape[1])

    @property
    def evaluation_seed(self) -> int:
        return self.chosen.evaluation_seed

    @property
    def predicted_share(self) -> float:
        return self.chosen.rate


def random_tokens(
    random: np.random.Generator, count: int, special: frozenset[int], vocabulary_size: int
) -> npt.NDArray[np.int64]:
    """int64 [count], uniform over the vocabulary without the special tokens."""
    drawn = random.integers(vocabulary_size - len(special), size=count)
    for token in sorted(special):
        drawn += drawn >= token
    return drawn
