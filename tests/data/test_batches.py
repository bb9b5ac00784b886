from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.batches import batch
from experiments.data.errors import DataError
from experiments.data.packing import Packed


def numbered(sequences: int, length: int = 3) -> Packed:
    """A split whose every token is the number of its sequence."""
    tokens = np.repeat(np.arange(sequences, dtype=np.uint16)[:, None], length, axis=1)
    return Packed("train", tokens, tokens.size, tokens.size, sequences)


SIZES = st.integers(1, 40).flatmap(lambda sequences: st.tuples(st.just(sequences), st.integers(1, sequences)))


@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), epochs=st.integers(1, 4))
def test_every_epoch_has_every_sequence_once(sizes: tuple[int, int], seed: int, epochs: int) -> None:
    sequences, batch_size = sizes
    steps = -(-epochs * sequences // batch_size)
    seen = np.concatenate([batch(numbered(sequences), seed, step, batch_size)[:, 0] for step in range(steps)])
    for epoch in range(epochs):
        assert sorted(seen[epoch * sequences : (epoch + 1) * sequences]) == list(range(sequences))


@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_a_batch_is_a_pure_function_of_seed_and_step(sizes: tuple[int, int], seed: int, steps: list[int]) -> None:
    sequences, batch_size = sizes
    packed = numbered(sequences)
    forward = {step: batch(packed, seed, step, batch_size) for step in steps}
    for step in reversed(steps):
        again = batch(numbered(sequences), seed, step, batch_size)
        assert again.shape == (batch_size, 3)
        assert again.dtype == np.int64
        assert np.array_equal(forward[step], again)


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    packed = numbered(1000)
    orders = [batch(packed, seed, epoch, 1000)[:, 0] for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert all((first != second).mean() > 0.9 for first, second in itertools.pairwise(orders))


def test_a_split_smaller_than_a_batch_is_refused_with_both_numbers() -> None:
    with pytest.raises(DataError) as error:
        batch(numbered(7, length=100), 0, 0, 64)
    assert "batch_size=64: a batch needs 6,400 tokens (64 rows of 100)" in str(error.value)
    assert "the train split has 700 (7 rows)" in str(error.value)
    assert "batch_size=7 or less" in str(error.value)


def test_a_step_late_in_a_long_run_costs_less_than_a_millisecond() -> None:
    packed = Packed("train", np.zeros((1_000_000, 8), dtype=np.uint16), 1, 1, 1)
    times = []
    for step in range(10**9, 10**9 + 20):
        start = time.thread_time()
        batch(packed, 0, step, 64)
        times.append(time.thread_time() - start)
    assert min(times) < 1e-3
