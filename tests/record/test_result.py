from __future__ import annotations

import dataclasses
import json
import math

import pytest

from experiments.files.durable import to_json
from experiments.record.result import Result


def test_json_and_back(result):
    assert Result.from_dict(json.loads(to_json(result.to_dict()))) == result


def test_an_unfinished_run_has_null_for_what_was_not_measured():
    known = {"steps": 7, "skipped_steps": 0, "tokens": 448, "epochs": 0.1, "wall_seconds": 1.5, "seed": 3}
    result = Result.unfinished("nan", "step 8: loss is nan", training_loss=math.nan, **known)
    written = json.loads(to_json(result.to_dict()))
    assert written["validation_loss"] is None and written["parameters"] is None
    assert written["training_loss"] == "nan"
    back = Result.from_dict(written)
    assert math.isnan(back.training_loss)
    assert dataclasses.replace(back, training_loss=None) == dataclasses.replace(result, training_loss=None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.pop("steps"), "missing key steps"),
        (lambda r: r.update(stepz=1), "unknown key stepz"),
        (lambda r: r.update(steps="many"), "steps: .*integer"),
        (lambda r: r.update(status="finished"), "status: .*'done'"),
        (lambda r: r.update(perplexity="big"), "perplexity: .*number"),
    ],
)
def test_a_file_with_other_keys_or_types_is_refused_by_name(result, change, said):
    written = result.to_dict()
    change(written)
    with pytest.raises(ValueError, match=said) as caught:
        Result.from_dict(written)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [{}, {"status": []}, {"status": "done"}, {"": None}])
def test_no_result_at_all_is_refused(content):
    with pytest.raises(ValueError) as caught:
        Result.from_dict(content)
    assert "\n" not in str(caught.value)


def test_a_status_goes_with_a_reason_and_done_with_numbers(result):
    with pytest.raises(AssertionError):
        dataclasses.replace(result, status="oom")
    with pytest.raises(AssertionError):
        dataclasses.replace(result, validation_loss=None)
