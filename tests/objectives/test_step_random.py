"""The random numbers of a step."""

from __future__ import annotations

from experiments.objectives.step_random import step_random


def test_every_purpose_seed_and_step_has_numbers_of_its_own():
    places = [
        (purpose, seed, step)
        for purpose in (b"mask", b"span")
        for seed in (0, 1, 2**32 - 1)
        for step in (0, 1, 2**32, 2**64 - 1)
    ]
    drawn = [step_random(*place).bytes(16) for place in places]
    assert len({*drawn}) == len(places)
    assert [step_random(*place).bytes(16) for place in places] == drawn
