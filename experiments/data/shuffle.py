"""Permutations of any size that are computed where they are asked for, and never held in memory.

A Feistel network over pairs (i, j) of Z_high x Z_wide, index = i * wide + j: each half is shifted by a keyed hash of
the other, which can be undone, so that the whole permutes range(high * wide); an index that lands outside range(size)
walks on until it is inside (Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains, methods 2 and 3).
"""

from __future__ import annotations

import math

import numpy as np

ROUNDS = 8


def keys(purpose: int, seed: int, number: int) -> np.ndarray:
    """Round keys, uint64 [ROUNDS], from Philox keyed by the arguments alone (purpose, seed < 2**32; number < 2**64)."""
    return np.random.Philox(key=np.array([purpose << 32 | seed, number], dtype=np.uint64)).random_raw(ROUNDS)


def permute(index: np.ndarray, size: int, round_keys: np.ndarray) -> np.ndarray:
    """Where the keyed permutation of range(size) takes each index: int64, of the shape of `index`."""
    wide = math.isqrt(size - 1) + 1 if size > 1 else 1
    high = -(-size // wide)
    image = _network(index.astype(np.uint64), high, wide, round_keys)
    while (outside := image >= size).any():
        image[outside] = _network(image[outside], high, wide, round_keys)
    return image.astype(np.int64)


def _network(index: np.ndarray, high: int, wide: int, round_keys: np.ndarray) -> np.ndarray:
    i, j = np.divmod(index, np.uint64(wide))
    for key_i, key_j in round_keys.reshape(-1, 2):
        i = (i + _mix(j ^ key_i) % np.uint64(high)) % np.uint64(high)
        j = (j + _mix(i ^ key_j) % np.uint64(wide)) % np.uint64(wide)
    return i * np.uint64(wide) + j


def _mix(word: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014); wraps around modulo 2**64."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
