from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.objectives.kinds.causal import Causal, CausalObjective

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = frozenset(range(5))
VOCABULARY = 9


def objective() -> CausalObjective:
    words = SimpleNamespace(vocabulary_size=VOCABULARY, special=SPECIAL, pad_id=PAD, cls_id=CLS, sep_id=SEP)
    return Causal(kind="causal").build(words)


def test_by_hand():
    tokens = np.array([[CLS, 5, 6, SEP, 7, 8], [CLS, 6, 6, 5, UNK, 7]], dtype=np.uint16)
    batch = objective().batch(tokens, 0, 0)
    # 5 -> 6 | the end, the next document's first token | 7 -> 8; 6 -> 6, 6 -> 5, not what is unknown, unknown -> 7
    assert batch.positions.tolist() == [1, 4, 7, 8, 10]
    assert batch.targets.tolist() == [6, 8, 6, 5, 7]
    assert batch.tokens.tolist() == tokens.tolist() and batch.length == 6 and batch.tokens.dtype == torch.int64


@given(st.integers(1, 5), st.integers(2, 20), st.integers(0, 99), st.integers(0, 99))
def test_every_target_follows_its_position_in_a_document(sequences, length, data_seed, seed):
    tokens = np.random.default_rng(data_seed).integers(VOCABULARY, size=(sequences, length))
    tokens[0, :2] = 5, 6
    batch = objective().batch(tokens, seed, seed)
    chosen = set(batch.positions.tolist())
    for row, (sequence, place) in enumerate(itertools.product(range(sequences), range(length))):
        after = tokens[sequence, place + 1] if place + 1 < length else None
        expected = after is not None and after not in SPECIAL and tokens[sequence, place] not in (CLS, SEP)
        assert (row in chosen) == expected
    flat = tokens.reshape(-1)
    assert batch.targets.tolist() == flat[batch.positions.numpy() + 1].tolist()


def test_a_batch_may_have_nothing_to_predict():
    assert not len(objective().batch(np.array([[CLS, 5, SEP, 5]]), 0, 0).targets)
