from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.shuffle import keys, permute

SEEDS = st.integers(0, 2**32 - 1)


@given(size=st.integers(1, 3000), seed=SEEDS, number=st.integers(0, 2**63))
def test_every_index_is_taken_once(size: int, seed: int, number: int) -> None:
    image = permute(np.arange(size), size, keys(1, seed, number))
    assert np.array_equal(np.sort(image), np.arange(size))


@given(size=st.integers(1, 2**40), seed=SEEDS)
def test_an_image_depends_on_its_own_index_alone(size: int, seed: int) -> None:
    index = np.linspace(0, size - 1, num=9).astype(np.int64)
    alone = [permute(index[i : i + 1], size, keys(1, seed, 0))[0] for i in range(9)]
    assert permute(index, size, keys(1, seed, 0)).tolist() == alone
    assert all(0 <= place < size for place in alone)


def test_places_are_uniform_and_neighbours_part() -> None:
    size, trials = 50, 4000
    images = np.stack([permute(np.arange(size), size, keys(1, 0, number)) for number in range(trials)])
    for column in (0, 1, size - 1):
        counts = np.bincount(images[:, column], minlength=size)
        chi_square = float(((counts - trials / size) ** 2).sum() / (trials / size))
        # mean 49, standard deviation 10
        assert chi_square < 100
    beside = (np.diff(images, axis=1) == 1).mean()
    assert abs(beside - 1 / size) < 0.002


def test_keys_differ_by_purpose_seed_and_number() -> None:
    drawn = {keys(*arguments).tobytes() for arguments in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]}
    assert len(drawn) == 4
