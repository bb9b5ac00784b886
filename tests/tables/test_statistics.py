"""Statistics against numbers worked by hand: with 2 degrees of freedom Student's t has a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tables.verdicts.statistics import (
    Test,
    bootstrap_interval,
    equivalent,
    holm,
    p_greater,
    positive,
    seeds_to_show,
    standard_error,
    t_interval,
    together,
    two_sided,
)

VALUES = [1.0, 2.0, 3.0]  # mean 2, standard deviation 1


def upper_tail(t: float) -> float:
    """P(T > t) with 2 degrees of freedom."""
    return (1 - t / math.sqrt(2 + t * t)) / 2


def test_mean_and_interval_of_three_values():
    assert standard_error(VALUES) == pytest.approx(1 / math.sqrt(3))
    # 4.3027 is the 97.5% point with 2 degrees of freedom: 0.95 sqrt(2 / (1 - 0.95^2))
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / math.sqrt(3)
    assert t_interval(VALUES) == pytest.approx((2 - half, 2 + half))
    assert half == pytest.approx(2.4841, abs=1e-4)


def test_one_sided_p_values():
    assert p_greater(VALUES, 0) == pytest.approx(upper_tail(2 * math.sqrt(3)))
    assert p_greater(VALUES, 2) == pytest.approx(0.5)
    assert p_greater(VALUES, 3) == pytest.approx(1 - upper_tail(math.sqrt(3)))
    found = positive(VALUES)
    assert found.holds + found.fails == pytest.approx(1)


def test_one_value_says_nothing():
    assert standard_error([5.0]) is None and t_interval([5.0]) is None and bootstrap_interval([5.0]) is None
    assert two_sided(positive([5.0])) == 1.0
    assert two_sided(equivalent([0.0], 10.0)) == 1.0


def test_values_without_spread_decide_by_where_they_are():
    assert (p_greater([1.0, 1.0], 0), p_greater([1.0, 1.0], 1), p_greater([1.0, 1.0], 2)) == (0, 1, 1)


def test_equivalence_is_two_one_sided_tests():
    # distances to the margins of 10: 12 and 8, over 1 / sqrt(3)
    assert equivalent(VALUES, 10.0).holds == pytest.approx(upper_tail(8 * math.sqrt(3)))
    # a difference that is not significant is none only where the margin says so
    wide = [-1.0, 0.0, 1.0]
    assert two_sided(positive(wide)) == pytest.approx(1)
    assert two_sided(equivalent(wide, 0.5)) > 0.05
    # a small difference that is significant may still be within the margin
    small = [0.010, 0.011, 0.012]
    assert two_sided(positive(small)) < 0.05 and equivalent(small, 0.05).holds < 0.025
    # and one beyond the margin is different: both sides tried, so twice the smaller p
    assert equivalent(VALUES, 0.5).fails == pytest.approx(2 * upper_tail(1.5 * math.sqrt(3)))


def test_the_worst_part_decides_that_all_hold_and_bonferroni_that_one_fails():
    parts = [Test(0.01, 0.99), Test(0.03, 0.97), Test(0.6, 0.4)]
    assert together(parts) == Test(0.6, 1.0)
    assert together([Test(0.99, 0.01), Test(0.2, 0.8)]) == Test(0.99, 0.02)
    assert two_sided(together([])) == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.2, 0.9, 0.001, 0.02]) == pytest.approx([0.4, 0.9, 0.004, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lowers_nothing(p_values):
    adjusted = holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert list(np.array(adjusted)[order]) == sorted(adjusted)


def test_the_bootstrap_stays_within_the_values_and_repeats_itself():
    low, high = bootstrap_interval(VALUES)
    # of the 27 resamples one has the mean 1 and one the mean 3: 3.7% each, more than the 2.5% left out
    assert (low, high) == (1, 3)
    assert bootstrap_interval(VALUES) == (low, high)


def test_seeds_that_would_show_a_mean():
    # with 3 seeds of mean 2 and deviation 1 the p-value is 0.037
    assert seeds_to_show(2.0, 1.0, 0.0372) == 3
    assert seeds_to_show(2.0, 1.0, 0.0370) == 4
    assert seeds_to_show(-1.0, 1.0, 0.025) is None
    assert seeds_to_show(1e-6, 1.0, 0.025) is None
    assert seeds_to_show(1.0, 0.0, 0.025) == 2


def test_the_interval_covers_the_mean_19_times_in_20():
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        low, high = t_interval(list(random.normal(3.0, 2.0, 4)))
        inside += low < 3.0 < high
    assert 0.92 < inside / 400 < 0.98
