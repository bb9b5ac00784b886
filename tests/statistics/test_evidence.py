"""Both kinds of evidence against their definitions, against numbers by hand, and by simulation without a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from experiments.statistics.evidence import (
    ALPHA,
    PRIOR_VARIANCE,
    Anytime,
    Planned,
    Waiting,
    interval,
    mean_and_deviation,
    standard_error,
)

COUNTS = st.integers(2, 60)
LEVELS = st.sampled_from([0.05, 0.01, 0.004])


@pytest.mark.parametrize("evidence", [Anytime(), Planned()])
@given(count=COUNTS, level=LEVELS, deviation=st.floats(1e-3, 1e3), mean=st.floats(-10, 10))
def test_a_mean_at_the_edge_of_the_interval_has_the_level_as_its_p_value(evidence, count, level, deviation, mean):
    half = evidence.half_width(count, deviation, level)
    if math.isfinite(half):
        for null in (mean - half, mean + half):
            assert evidence.p_value(count, mean, deviation, null) == pytest.approx(level, rel=1e-6)
    else:
        assert evidence.p_value(count, mean, deviation, mean - 1e9 * deviation) > level


@pytest.mark.parametrize(
    ("count", "widths"), [(4, 7.2), (5, 5.4), (8, 4.2), (12, 3.8), (20, 3.6), (30, 3.6)], ids=lambda each: f"{each}"
)
def test_half_widths_in_standard_errors(count, widths):
    """Half widths for g = 4, computed independently of this code."""
    assert Anytime().half_width(count, math.sqrt(count)) == pytest.approx(widths, abs=0.05)


@pytest.mark.parametrize(("count", "t"), [(2, 3.0), (5, 1.2), (9, 4.0)])
def test_the_e_value_is_the_mixture_that_it_is_said_to_be(count, t):
    """The ratio of t's density, averaged over effects of variance g in its noncentrality, to that without an effect."""

    def averaged(effect):
        density = stats.nct.pdf(t, count - 1, effect * math.sqrt(count))
        return density * stats.norm.pdf(effect, scale=math.sqrt(PRIOR_VARIANCE))

    mixture, _ = integrate.quad(averaged, -12, 12, points=[0.0], limit=200)
    e_value = mixture / stats.t.pdf(t, count - 1)
    p_value = Anytime().p_value(count, t / math.sqrt(count), 1.0, 0.0)
    assert p_value == pytest.approx(min(1.0, 1 / e_value), rel=1e-3)


def test_looking_after_every_seed_raises_few_false_alarms():
    """For sequences without a difference, tested after each of 2 to 100 seeds. Student's t would be wrong for many."""
    random = np.random.default_rng(20261122)
    values = random.normal(size=(4000, 100))
    counts = np.arange(1, 101)
    means = values.cumsum(1) / counts
    squares = (values**2).cumsum(1)
    deviations = np.sqrt(np.maximum(squares - counts * means**2, 0) / np.maximum(counts - 1, 1))
    alarms = {}
    for evidence in (Anytime(), Planned()):
        halves = np.array([evidence.half_width(int(count), 1.0) for count in counts[1:]])
        alarms[evidence.name] = np.mean((np.abs(means[:, 1:]) > halves * deviations[:, 1:]).any(1))
    assert alarms["anytime"] <= ALPHA
    assert alarms["planned"] > 3 * ALPHA


def test_the_planned_interval_is_students():
    values = [0.1, 0.3, -0.2, 0.25, 0.4]
    expected = stats.ttest_1samp(values, 0.0)
    low, high = expected.confidence_interval(0.95)
    assert interval(Planned(), values) == pytest.approx((low, high))
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    assert Planned().p_value(5, mean, deviation, 0.0) == pytest.approx(expected.pvalue)


def test_the_anytime_interval_is_the_wider_one():
    values = [0.1, 0.3, -0.2, 0.25, 0.4]
    anytime, planned = interval(Anytime(), values), interval(Planned(), values)
    assert anytime[0] < planned[0] < planned[1] < anytime[1]


def test_too_few_values_say_nothing():
    for evidence in (Anytime(), Planned()):
        assert evidence.p_value(1, 5.0, 0.0, 0.0) == 1.0
        assert interval(evidence, [5.0]) is None
    assert interval(Anytime(), [1.0, 1.1]) is None, "the interval of two or three is infinite"
    assert interval(Anytime(), []) is None
    assert standard_error([1.0]) is None


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_equal_differences_are_the_limit_of_differences_that_hardly_differ(count):
    evidence = Anytime()
    exact, near = (evidence.p_value(count, 0.5, deviation, 0.0) for deviation in (0.0, 1e-9))
    assert exact == pytest.approx(near, rel=1e-6, abs=1e-6)
    assert evidence.p_value(count, 0.5, 0.0, 0.5) == 1.0
    assert evidence.half_width(count, 0.0) == (0.0 if exact < ALPHA else math.inf)
    # two or three differences have no finite anytime-valid interval, however equal they are
    assert (evidence.half_width(count, 0.0) == 0.0) == (count >= 4)
    # Student's t has no such limit: with two of them, it would decide anything
    assert Planned().p_value(count, 0.5, 0.0, 0.0) == 1.0 and Planned().half_width(count, 0.0) == math.inf


@pytest.mark.parametrize("count", range(2, 12))
def test_the_rounding_of_a_mean_is_no_spread(count):
    assert mean_and_deviation([0.1] * count) == (0.1, 0.0)
    assert interval(Planned(), [0.1] * count) is None


def test_the_rounding_of_equal_differences_is_no_spread():
    """One example more of 277 is a share of 1/277, whatever it is added to."""
    shares = [100 * right / 277 - 100 * (right - 1) / 277 for right in range(1, 278)]
    assert len({*shares}) > 1 and mean_and_deviation(shares)[1] == 0.0
    assert interval(Planned(), shares[:2]) is None
    assert mean_and_deviation([4.2, 4.2001])[1] > 0.0


def test_a_plan_that_is_not_complete_says_nothing():
    assert Waiting().p_value(50, 9.0, 0.1, 0.0) == 1.0
    assert interval(Waiting(), [9.0, 9.1, 9.2]) is None
