"""The random numbers of a step: a pure function of (purpose, seed, step), so no generator state is kept."""

from __future__ import annotations

import numpy as np


def step_random(purpose: bytes, seed: int, step: int) -> np.random.Generator:
    """A generator for one purpose in one step. purpose: four bytes; seed < 2**32; step < 2**64."""
    key = np.array([int.from_bytes(purpose, "big") << 32 | seed, step], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
