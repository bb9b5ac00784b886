"""What a search is to find, and whether it prunes."""

from __future__ import annotations

import pytest

from experiments.settings.search import Search

KEYS = {
    "trials": 3, "maximize": [], "sampler": "tpe", "random_trials": 2, "pruner": "auto", "prune_after_trials": 5,
    "prune_after_step": 0, "seed": 0, "params": None,
}  # fmt: skip


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
