"""The numbers of a result by their names."""

from __future__ import annotations

import pytest

from experiments.record.result import Result
from experiments.record.result_numbers import FIELDS, not_one_number, value_of


def test_a_value_is_a_field_the_total_of_its_parts_or_one_part():
    result = Result.unfinished(
        "oom", "too large", steps=7, skipped_steps=0, tokens=1, epochs=0.5, wall_seconds=2.0, seed=0,
        parameters={"attention": 4, "total": 10}, scores={"f1": 0.5},
    )  # fmt: skip
    names = ("steps", "epochs", "parameters", "parameters.attention", "scores.f1", "scores", "mfu")
    assert [value_of(result, name) for name in names] == [7, 0.5, 10, 4, 0.5, None, None]


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("validation_loss", ""),
        ("parameters.total", ""),
        ("parameters.attention", ""),
        ("scores.f1", ""),
        ("validation_los", "result.json has no number 'validation_los' (did you mean validation_loss?)"),
        ("los", f"result.json has no number 'los'; it has {', '.join(FIELDS)}"),
        ("parameters", "parameters has several numbers; did you mean parameters.total?"),
        ("parameters.atention", "parameters has no part 'atention' (did you mean attention?)"),
        ("scores", "scores has several numbers; write scores.NAME"),
        ("perplexity.total", "perplexity is one number, without 'total'; did you mean perplexity?"),
    ],
)
def test_a_place_that_is_not_one_number_is_named(place, wrong):
    assert not_one_number(place) == wrong


def test_text_is_no_number():
    assert not {"status", "reason", "config", "seed", "backend", "compiled"} & set(FIELDS)
