from __future__ import annotations

import math

from experiments.display.numbers import duration, rough_duration, significant


def test_numbers_read_well():
    assert [duration(seconds) for seconds in (0.4, 59.6, 61, 3599, 7260)] == ["0s", "1m00s", "1m01s", "59m59s", "2h01m"]
    assert [significant(value) for value in (1.0, 148.41, 2980.96, math.inf)] == ["1.00", "148.4", "2,981", "inf"]


def test_a_rough_time_is_in_the_largest_unit_of_which_it_has_one():
    times = {12.4: "12 s", 185: "3.1 min", 7560: "2.1 h", 86400: "1.0 days", 365 * 86400: "1.0 years"}
    assert {seconds: rough_duration(seconds) for seconds in times} == times
