"""Theorem 1 in numbers: an exact fit where the theorem promises one, and none in its counter-example."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.tables.numerical.column_stochastic import construct, measure, rank_gap, relative_error

EXACT = 1e-9


def matrix(seed: int, tokens: int) -> np.ndarray:
    """The target of a seed, as `measure` draws it."""
    return np.random.default_rng([seed, tokens]).dirichlet(np.ones(tokens), tokens).T


def error(form: str, seed: int = 0, tokens: int = 4, heads: int = 1, key_size: int = 1, starts: int = 2) -> float:
    return measure(seed=seed, form=form, tokens=tokens, heads=heads, key_size=key_size, starts=starts)["error"]


@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (4, 4), (7, 9)])
def test_the_proofs_solution_gives_any_positive_column_stochastic_matrix(tokens, width):
    target = matrix(1, tokens)
    assert target.sum(0) == pytest.approx(np.ones(tokens)) and (target > 0).all()
    x = np.random.default_rng(0).normal(size=(width, tokens))
    assert relative_error(construct(target, x), target) < EXACT


def test_the_optimiser_reaches_zero_from_n_on():
    assert error("construction", key_size=4) < EXACT
    assert error("given_x", key_size=4) < EXACT
    assert error("free", key_size=4) < EXACT


@pytest.mark.parametrize("seed", range(4))
def test_the_counter_example_is_as_bad_as_worked_out_by_hand(seed):
    # X = [1, 0]: the second query's logits are both 0, whatever W is, so its column is (1/2, 1/2); the first is free
    target = matrix(seed, 2)
    by_hand = math.sqrt(2) * abs(target[0, 1] - 0.5) / np.linalg.norm(target)
    assert error("counter_example", seed, tokens=2) == pytest.approx(by_hand, rel=1e-9)


def test_below_n_there_is_an_error_and_it_falls_with_rank():
    errors = [error("given_x", key_size=size) for size in (1, 2, 3, 4)]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] > 1e-4


def test_a_softmax_does_not_see_what_is_added_to_a_column():
    # so n - 1 is enough where Q and K are free, and no less
    assert error("free", key_size=3) < EXACT
    assert error("free", key_size=2) > 1e-4


@pytest.mark.parametrize("seed", range(12))
def test_no_rank_below_n_less_1_can_give_the_matrices_of_the_table(seed):
    target = matrix(seed, 8)
    assert all(rank_gap(target, rank) > 1e-2 for rank in range(1, 7))
    assert rank_gap(target, 7) < EXACT and rank_gap(target, 8) == 0


def test_rank_gap_by_hand():
    # log P, columns centred, is a (1, -1) in the first column and 0 in the second: singular values sqrt(2) a and 0
    target = np.array([[0.8, 0.5], [0.2, 0.5]])
    assert rank_gap(target, 0) == pytest.approx(math.sqrt(2) * math.log(4) / 2)
    assert rank_gap(target, 1) == pytest.approx(0, abs=1e-12)


def test_talking_heads_of_rank_1_reach_what_one_head_cannot():
    alone, talking = error("free", tokens=5), error("talking_heads", tokens=5, heads=4, starts=1)
    assert alone > 1e-2 and talking < EXACT
    # the weights alone mix fewer maps than the logits and the weights
    assert error("weights", tokens=5, heads=2) >= error("talking_heads", tokens=5, heads=2) - 1e-3


def test_a_seed_is_a_matrix_and_the_forms_of_a_seed_share_it():
    errors = [error("free", seed, tokens=3, starts=1) for seed in (0, 0, 1)]
    assert errors[0] == errors[1] != errors[2]
