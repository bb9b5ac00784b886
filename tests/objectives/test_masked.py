from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.objectives.kinds.masked import Masked, MaskedObjective, random_tokens
from experiments.objectives.loss import loss
from experiments.objectives.objective import Batch
from tests.fixtures.growth import takes_linear_time

VOCABULARY, MASK, SPECIAL = 50, 4, frozenset({0, 2, 4, 49})
ORDINARY = sorted(set(range(VOCABULARY)) - SPECIAL)
BERT = Masked(kind="masked", rate=0.15, mask_share=0.8, random_share=0.1, evaluation_seed=0)


def batch_of(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(VOCABULARY, size=shape)


def masked(tokens, seed=0, step=0, objective=BERT):
    vocabulary = SimpleNamespace(vocabulary_size=VOCABULARY, special=SPECIAL, mask_id=MASK)
    return MaskedObjective(objective, vocabulary).batch(tokens, seed, step)


def equal(first: Batch, second: Batch) -> bool:
    pairs = zip(first[1:3], second[1:3], strict=True)
    return torch.equal(first.tokens, second.tokens) and all(torch.equal(*pair) for pair in pairs)


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 40)),
    data_seed=st.integers(0, 1000),
    seed=st.integers(0, 2**32 - 1),
    step=st.integers(0, 2**40),
    rate=st.floats(0.01, 0.99),
    mask_share=st.floats(0, 1),
)
def test_what_holds_of_every_batch(shape, data_seed, seed, step, rate, mask_share):
    objective = BERT.model_copy(update={"rate": rate, "mask_share": mask_share, "random_share": (1 - mask_share) / 2})
    tokens = batch_of(shape, data_seed)
    tokens[0, 0] = ORDINARY[0]
    original = tokens.copy()
    result = masked(tokens, seed, step, objective)
    assert np.array_equal(tokens, original)

    flat, positions, now = original.reshape(-1), result.positions.numpy(), result.tokens.reshape(-1).numpy()
    assert {tensor.dtype for tensor in (result.tokens, result.positions, result.targets)} == {torch.int64}
    assert (
        (*result.tokens.shape,) == shape
        and result.length == shape[1]
        and result.positions.shape == result.targets.shape
    )
    assert (np.diff(positions) > 0).all()
    assert np.array_equal(result.targets.numpy(), flat[positions])
    assert not SPECIAL & set(flat[positions])
    candidates = sum(token not in SPECIAL for token in flat)
    assert len(positions) == max(1, round(rate * candidates))
    others = np.setdiff1d(np.arange(flat.size), positions)
    assert np.array_equal(now[others], flat[others])
    assert set(now[positions]) <= {MASK, *ORDINARY}

    again = masked(original, seed, step, objective)
    assert equal(result, again)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_the_result_does_not_depend_on_how_tokens_are_stored(dtype):
    tokens = batch_of((8, 32))
    result = masked(tokens.astype(dtype)[:, ::1])
    assert equal(result, masked(tokens))


def test_seeds_and_steps_choose_other_positions():
    tokens = batch_of((8, 32))
    chosen = {tuple(masked(tokens, seed, step).positions.tolist()) for seed in range(4) for step in range(4)}
    assert len(chosen) == 16


def test_shares_and_evenness():
    tokens = np.random.default_rng(0).choice(ORDINARY, (400, 500))
    result = masked(tokens)
    count = len(result.positions)
    assert count == 30_000
    now = result.tokens.reshape(-1)[result.positions]
    hidden, kept = (now == MASK), (now == result.targets)
    # a random token is the old one once in len(ORDINARY); 5 standard deviations of a share are below 0.012
    assert hidden.float().mean().item() == pytest.approx(0.8, abs=0.012)
    assert kept.float().mean().item() == pytest.approx(0.1 + 0.1 / len(ORDINARY), abs=0.012)
    # every position of a sequence is as likely as any other: 500 counts of mean 60
    counts = torch.bincount(result.positions % 500, minlength=500).double()
    chi_square = ((counts - 60).square() / 60).sum().item()
    assert abs(chi_square - 499 * 0.85) < 6 * math.sqrt(2 * 499)


def test_random_tokens_are_even_over_the_ordinary_ones():
    drawn = random_tokens(np.random.default_rng(0), 46_000, SPECIAL, VOCABULARY)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == ORDINARY
    assert ((counts - 1000) ** 2 / 1000).sum() < 45 + 6 * math.sqrt(90)


def test_extreme_shares_by_hand():
    tokens = np.array([[0, 7, 2], [2, 8, 0]])
    everything = BERT.model_copy(update={"rate": 0.99, "mask_share": 1.0, "random_share": 0.0})
    result = masked(tokens, objective=everything)
    assert result.tokens.tolist() == [[0, MASK, 2], [2, MASK, 0]]
    assert (result.positions.tolist(), result.targets.tolist()) == ([1, 4], [7, 8])
    kept = masked(tokens, objective=everything.model_copy(update={"mask_share": 0.0}))
    assert kept.tokens.tolist() == tokens.tolist() and kept.targets.tolist() == [7, 8]


def test_a_batch_may_have_nothing_to_mask():
    tokens = np.array([[0, 2], [49, 4]])
    batch = masked(tokens)
    assert not len(batch.targets) and batch.tokens.tolist() == tokens.tolist()


def test_the_time_of_masking_is_linear_in_the_sequences():
    def begin(sequences):
        tokens = batch_of((sequences, 64))
        return lambda: masked(tokens)

    assert takes_linear_time(begin, 128)


def test_loss_is_the_summed_negative_log_likelihood():
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]], requires_grad=True)
    total = loss(logits, torch.tensor([1, 0]))
    assert total.item() == pytest.approx(math.log(2) + math.log(4 / 3), abs=1e-6)
    total.backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.5, -0.5], [-0.25, 0.25]]))


def test_loss_of_half_precision_logits_is_not_computed_in_it():
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = torch.arange(64)
    assert loss(logits, targets).dtype == torch.float64
    torch.testing.assert_close(loss(logits, targets).double(), loss(logits.double(), targets), rtol=1e-6, atol=0)
