"""The interval of a proportion against the equation that defines it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.statistics.proportion import wilson_interval


@given(total=st.integers(1, 10_000), share=st.floats(0, 1), level=st.sampled_from([0.05, 0.01]))
def test_its_ends_are_as_many_standard_errors_away_as_the_level_says(total, share, level):
    count = round(share * total)
    z = stats.norm.ppf(1 - level / 2)
    for end in wilson_interval(count, total, level):
        assert 0 <= end <= 1
        assert abs(count / total - end) == pytest.approx(z * math.sqrt(end * (1 - end) / total), abs=1e-7)


def test_what_was_never_seen_may_still_occur():
    low, high = wilson_interval(0, 20)
    assert low == pytest.approx(0) and 0.1 < high < 0.2
    assert wilson_interval(20, 20) == pytest.approx((1 - high, 1))
