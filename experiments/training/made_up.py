"""A vocabulary of which only the size is known, and random tokens of it, for steps that learn nothing."""

# B batch, N length

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.settings.run import Settings


class MadeUpVocabulary(NamedTuple):
    """A stand-in for a vocabulary. The first ids are the special ones."""

    vocabulary_size: int
    special: frozenset[int] = frozenset(range(5))
    pad_id: int = 0
    unk_id: int = 1
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4

    @property
    def sentinel_ids(self) -> range:
        """All ids except the special ones, so that there are always enough sentinels."""
        return range(5, self.vocabulary_size)

    def random_rows(self, settings: Settings) -> npt.NDArray[np.int64]:
        """A batch of tokens without special ones, int64 [B, N]. The time of a step does not depend on the tokens."""
        shape = (settings.batch_size, settings.row_length)
        return np.random.default_rng(settings.seed).integers(len(self.special), self.vocabulary_size, shape)
