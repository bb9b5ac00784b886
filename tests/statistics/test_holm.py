"""Holm's correction, by hand."""

from __future__ import annotations

import pytest

from experiments.statistics.holm import holm_levels, next_level


def test_holms_levels_by_hand():
    # 0.01 <= 0.05 / 3, then 0.02 <= 0.05 / 2, then 0.2 > 0.05
    assert holm_levels([0.2, 0.01, 0.02]) == pytest.approx([0.0, 0.05 / 3, 0.025])
    # the smallest is kept, and so are all
    assert holm_levels([0.03, 0.02, 0.9]) == [0.0, 0.0, 0.0]
    # also 0.024, although it is at most 0.05 / 2
    assert holm_levels([0.024, 0.02, 0.9]) == [0.0, 0.0, 0.0]
    assert holm_levels([]) == []


@pytest.mark.parametrize("others", [[0.2], [0.01, 0.2, 0.3], [0.001, 0.002], []])
def test_a_kept_p_value_is_tested_at_the_next_level(others):
    level = next_level(holm_levels([0.1, *others]))
    assert level == pytest.approx(0.05 / (1 + sum(p > 0.05 for p in others)))
    assert holm_levels([level, *others])[0] == level and holm_levels([level * 1.001, *others])[0] == 0.0
