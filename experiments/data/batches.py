"""The sequences of a step, as a pure function of (seed, step), so there is no loader state to save."""

# B sequences a batch, N tokens a sequence

from __future__ import annotations

import numpy as np

from experiments.data.errors import DataError
from experiments.data.packing import Packed
from experiments.data.shuffle import keys, permute

BATCHES = 1  # purpose of the keys


def batch(packed: Packed, seed: int, step: int, batch_size: int) -> np.ndarray:
    """Tokens of step `step` (counted from 0), int64 [B, N]. Raises DataError if the split is smaller than a batch.

    Epochs follow each other without a gap. Each is its own permutation of all sequences, so every epoch has every
    sequence once. A batch may contain the end of one epoch and the start of the next.
    """
    sequences, length = packed.tokens.shape
    if batch_size > sequences:
        raise DataError(
            f"batch_size={batch_size}: a batch needs {batch_size * length:,} tokens "
            f"({batch_size} rows of {length}), the {packed.split} split has {sequences * length:,} "
            f"({sequences} rows); use batch_size={sequences} or less, a smaller length, or more text"
        )
    position = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, index = np.divmod(position, sequences)
    rows = [permute(index[epochs == epoch], sequences, keys(BATCHES, seed, int(epoch))) for epoch in np.unique(epochs)]
    return packed.tokens[np.concatenate(rows)].astype(np.int64)
