"""How many texts of the splits for evaluation are also in the training split."""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

IN_TRAIN = "in_train"  # name of the count in the facts of packed texts and examples
SHARE = 0.01  # of a split of documents or of pairs, from which on a run says so: short lines repeat in any text


class Repetitions:
    """Digests of the texts of each split, 8 bytes a text."""

    def __init__(self) -> None:
        self._digests: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))

    def add(self, split: str, *texts: str) -> None:
        """Take note of a text of a split, or of the texts that make one input."""
        content = "\0".join(texts).encode()
        self._digests[split].frombytes(hashlib.blake2b(content, digest_size=8).digest())

    def count(self, split: str) -> int:
        """The number of texts of a split that are also in the training split; 0 for the training split."""
        return 0 if split == "train" else int(np.isin(self._digests[split], self._digests["train"]).sum())


def remarks(noun: str, counts: Mapping[str, tuple[int, int]], share: float = SHARE) -> Iterator[str]:
    """A line for each split of whose texts more than this share is also in the training split.

    noun: what the texts are, in the plural. counts: how many of each split's texts are also there, and how many it has.
    """
    for split, (repeated, texts) in counts.items():
        if repeated > share * texts:
            yield f"{repeated:,} of the {texts:,} {noun} of {split} {'is' if repeated == 1 else 'are'} also in train"
