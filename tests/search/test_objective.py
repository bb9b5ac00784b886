"""The numbers of a result that a search can optimize."""

from __future__ import annotations

import pytest

from experiments.failures.failure import Mistake
from experiments.record.result import Result
from experiments.search.objective import FIELDS, check_objectives, value_of
from experiments.settings.search import Search

KEYS = {
    "trials": 3, "maximize": [], "sampler": "tpe", "random_trials": 2, "pruner": "auto", "prune_after_trials": 5,
    "prune_after_step": 0, "seed": 0, "params": None,
}  # fmt: skip


def test_a_value_is_a_field_the_total_of_its_parts_or_one_part():
    result = Result.unfinished(
        "oom", "too large", steps=7, skipped_steps=0, tokens=1, epochs=0.5, wall_seconds=2.0, seed=0,
        parameters={"attention": 4, "total": 10}, scores={"f1": 0.5},
    )  # fmt: skip
    names = ("steps", "epochs", "parameters", "parameters.attention", "scores.f1", "scores", "mfu")
    assert [value_of(result, name) for name in names] == [7, 0.5, 10, 4, 0.5, None, None]


def test_fields_that_are_no_numbers_are_refused():
    check_objectives(["validation_loss", "tokens_per_second", "parameters.total", "scores.f1", "peak_memory_bytes"])
    assert not {"status", "reason", "config", "seed", "backend", "compiled"} & set(FIELDS)
    with pytest.raises(Mistake, match=r"no number 'validation_los' \(did you mean validation_loss\?\)"):
        check_objectives(["validation_los"])


@pytest.mark.parametrize(
    ("minimize", "maximize", "prunes"),
    [(["validation_loss"], [], True), (["perplexity"], [], False), (["validation_loss"], ["mfu"], False)],
)
def test_runs_are_pruned_where_the_validation_loss_alone_is_minimized(minimize, maximize, prunes):
    search = Search(**KEYS | {"minimize": minimize, "maximize": maximize})
    assert search.prunes is prunes
    assert search.objectives == dict.fromkeys(minimize, "minimize") | dict.fromkeys(maximize, "maximize")
    assert not Search(**search.model_dump() | {"pruner": "none"}).prunes


def test_objectives_that_contradict_each_other_are_refused():
    for wrong, said in (
        ({"minimize": []}, "minimize and maximize are both empty"),
        ({"minimize": ["mfu"], "maximize": ["mfu"]}, "mfu is given twice"),
        ({"minimize": ["perplexity"], "pruner": "median"}, "validation_loss alone"),
    ):
        with pytest.raises(ValueError, match=said):
            Search(**KEYS | wrong)
