"""What decides whether the numbers of runs can be compared."""

from __future__ import annotations

import pytest

from experiments.record.result import UNKNOWN
from experiments.results.comparability import has_disturbed_speed


@pytest.mark.parametrize(
    ("facts", "disturbed"),
    [
        ({"cells_at_once": 1, "waited_for_cores": 0.01}, False),
        ({"cells_at_once": 2}, True),
        ({"waited_for_cores": 0.3}, True),
        # a run that is too short to have a speed
        ({"cells_at_once": 2, "tokens_per_second": None}, False),
    ],
)
def test_only_a_speed_that_was_measured_can_be_disturbed(facts, disturbed):
    assert has_disturbed_speed(UNKNOWN | {"tokens_per_second": 5000.0} | facts) == disturbed
