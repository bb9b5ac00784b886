from __future__ import annotations

import math

from experiments.display.numbers import difference_text, duration, rough_duration, rounded, significant


def test_numbers_read_well():
    assert [duration(seconds) for seconds in (0.4, 59.6, 61, 3599, 7260)] == ["0s", "1m00s", "1m01s", "59m59s", "2h01m"]
    assert [significant(value) for value in (1.0, 148.41, 2980.96, math.inf)] == ["1.00", "148.4", "2,981", "inf"]


def test_a_difference_is_told_from_zero():
    assert [rounded(value) for value in (0.0, 4.00129, 0.5e-4, 2.5e-16)] == ["0.0000", "4.0013", "0.0001", "2.5e-16"]
    assert difference_text(-0.0054, (-0.0104, -0.0004)) == "-0.0054 [-0.010, -4.0e-04]"
    assert difference_text(-0.0054, (-0.0104, -0.0004), digits=4) == "-0.0054 [-0.0104, -0.0004]"
    assert difference_text(1e-15, (-1e-15, 3e-6)) == "+1.0e-15 [-1.0e-15, +3.0e-06]"
    assert difference_text(0.01, None) == "+0.0100 (no finite interval yet)"


def test_a_rough_time_is_in_the_largest_unit_of_which_it_has_one():
    times = {12.4: "12 s", 185: "3.1 min", 7560: "2.1 h", 86400: "1.0 days", 365 * 86400: "1.0 years"}
    assert {seconds: rough_duration(seconds) for seconds in times} == times
