from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.model.architectures.two_stream_encoder import known
from experiments.objectives.kinds.permutation import Permutation, PermutationObjective

SPECIAL = frozenset(range(5))
VOCABULARY = 30


def permuted(tokens, seed=0, step=0, predict=6):
    words = SimpleNamespace(vocabulary_size=VOCABULARY, special=SPECIAL)
    chosen = Permutation(kind="permutation", predict=predict, evaluation_seed=0)
    return PermutationObjective(chosen, words).batch(tokens, seed, step)


def test_by_hand():
    # nothing but special tokens is given with K = 1
    batch = permuted(np.array([[2, 7, 8, 3], [2, 3, 9, 3]], dtype=np.uint16), predict=1)
    order = batch.inputs["order"]
    assert order[0].tolist() in ([0, 1, 2, 0], [0, 2, 1, 0]) and order[1].tolist() == [0, 0, 1, 0]
    assert batch.positions.tolist() == [1, 2, 6] and batch.targets.tolist() == [7, 8, 9]
    assert batch.tokens.tolist() == [[2, 7, 8, 3], [2, 3, 9, 3]]


def test_who_knows_whom_by_hand():
    # position 2 is predicted first, position 0 from it too; position 1 is given
    content, query = known(torch.tensor([[2, 0, 1]]))[0, 0].int().tensor_split(2)
    assert content.tolist() == [[1, 1, 1], [0, 1, 0], [0, 1, 1]]
    assert query.tolist() == [[0, 1, 1], [0, 0, 0], [0, 1, 0]]


@given(
    st.integers(1, 5), st.integers(2, 20), st.integers(0, 99), st.integers(0, 2**32 - 1), st.integers(0, 2**40),
    st.integers(1, 7),
)  # fmt: skip
def test_what_holds_of_every_batch(sequences, length, data_seed, seed, step, predict):
    tokens = np.random.default_rng(data_seed).integers(VOCABULARY, size=(sequences, length))
    tokens[0, 0] = 10
    original = tokens.copy()
    batch = permuted(tokens, seed, step, predict)
    assert np.array_equal(tokens, original) and np.array_equal(batch.tokens.numpy(), original)
    for row, order in zip(original, batch.inputs["order"].numpy(), strict=True):
        ordinary = sum(token not in SPECIAL for token in row)
        count = max(1, round(ordinary / predict)) if ordinary else 0
        assert sorted(order[order > 0]) == list(range(1, count + 1))
        assert not SPECIAL & set(row[order > 0])
    assert batch.positions.tolist() == np.flatnonzero(batch.inputs["order"].numpy()).tolist()
    assert batch.targets.tolist() == original.reshape(-1)[batch.positions.numpy()].tolist()
    again = permuted(original, seed, step, predict)
    assert torch.equal(batch.inputs["order"], again.inputs["order"])


def test_every_order_is_as_likely():
    orders = [permuted(np.array([[5, 6, 7]]), step=step, predict=1).inputs["order"][0].tolist() for step in range(1200)]
    counts = [sum(order == [a, b, 6 - a - b] for order in orders) for a in (1, 2, 3) for b in (1, 2, 3) if a != b]
    assert sum(counts) == 1200 and sum((count - 200) ** 2 / 200 for count in counts) < 25


def test_a_batch_may_have_nothing_to_predict():
    assert not len(permuted(np.array([[0, 2], [3, 4]])).targets)
