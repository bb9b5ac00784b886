"""The searches of a folder of runs: their data, and their panels in the browser."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("optuna", reason="needs attn[optuna]")

from experiments.commands.dashboard import newest
from experiments.dashboard import page
from experiments.dashboard.page import page_data
from experiments.search.space import space_of
from experiments.search.study import Study
from experiments.settings.search import JOURNAL, Search

SETTINGS = {"sampler": "random", "random_trials": 2, "pruner": "none", "prune_after_trials": 2, "prune_after_step": 0}
LOSSES = (5.0, 4.5, 4.75, 4.25)


@pytest.fixture
def search(make, tmp_path):
    """search(name, minimize, maximize) leaves a study of a failed, a pruned and the done trials, and a run of each."""

    def leave(name: str = "search-1", minimize=("validation_loss",), maximize=(), losses=LOSSES) -> None:
        keys = {"trials": 99, "minimize": [*minimize], "maximize": [*maximize], "seed": 0, "params": None}
        space = space_of(["heads=choice(1,2,3)", "learning_rate=interval(0,1)"])
        study = Study(tmp_path / "runs" / "sweeps" / name, Search(**SETTINGS, **keys), space)
        study.tell(study.claim(), "", None)
        study.tell(study.claim(), make(f"{name}-pruned", heads=7, finished=False).name, None, pruned=True)
        for number, loss in enumerate(losses):
            # the better, the slower
            values = {"validation_loss": loss, "tokens_per_second": 1000 * loss, "parameters": 7.0}
            run = make(f"{name}-{number}", heads=8 + number, losses=(6.0, loss - 0.5))
            study.tell(study.claim(), run.name, [values[each] for each in (*minimize, *maximize)])

    return leave


def test_the_trials_the_best_so_far_and_the_importance_of_each_setting(search, tmp_path):
    search(losses=(5.0, 4.5, 4.75, 4.25, 4.0, 4.125))
    before = (tmp_path / "runs" / "sweeps" / "search-1" / JOURNAL).read_bytes()
    for _ in range(2):
        (found,) = page_data([], tmp_path / "runs")["searches"].values()
        assert found["objectives"] == [{"name": "validation_loss", "direction": "minimize"}]
        assert [each["state"] for each in found["trials"]] == ["failed", "pruned", *["done"] * 6]
        assert [each["number"] for each in found["trials"]] == list(range(8))
        assert found["best_so_far"] == [[5.0, 4.5, 4.5, 4.25, 4.0, 4.0]] and found["best"] == [6]
        ((first, share), (second, rest)) = found["importances"][0]
        assert (
            {first, second} == {"heads", "learning_rate"}
            and share >= rest
            and math.isclose(share + rest, 1, abs_tol=1e-5)
        )
    assert (tmp_path / "runs" / "sweeps" / "search-1" / JOURNAL).read_bytes() == before


def test_the_best_so_far_of_what_is_maximized_rises(search, tmp_path):
    search(maximize=["tokens_per_second"])
    (found,) = page_data([], tmp_path / "runs")["searches"].values()
    assert found["best_so_far"] == [[5.0, 4.5, 4.5, 4.25], [5000.0] * 4]
    # the trial with 4.75 is as well on the front: it is faster than 4.5
    assert found["best"] == [2, 3, 4, 5]


def test_only_searches_of_runs_on_the_page_are_shown(search, make, tmp_path):
    search("search-1", losses=LOSSES[:1])
    make("another", variant="talking_heads")
    assert list(page_data([], tmp_path / "runs")["searches"]) == ["search-1"]
    assert not page_data(["variant=talking_heads"], tmp_path / "runs")["searches"]
    assert list(page_data(["heads=8"], tmp_path / "runs")["searches"]) == ["search-1"]


def test_journals_that_cannot_be_read_and_searches_without_room_are_named(search, tmp_path, monkeypatch, capsys):
    search("search-1", losses=LOSSES[:1])
    search("search-2", losses=LOSSES[:1])
    runs = tmp_path / "runs"
    one = page_data([], runs)["searches"]["search-1"]
    monkeypatch.setattr(page, "SEARCHES", len(json.dumps(one)))
    data = page_data([], runs)
    assert list(data["searches"]) == ["search-1"] and data["notes"][-1] == "There is no room here for 1 more search."
    (runs / "sweeps" / "search-1" / JOURNAL).write_text("{}\n")
    (runs / "sweeps" / "search-2" / JOURNAL).write_text("")
    capsys.readouterr()
    data = page_data([], runs)
    assert data["searches"] == {} and "search-1/study.journal: it is not the journal of a study" in data["notes"][-1]
    assert capsys.readouterr().err.splitlines() == data["notes"][1:] and len(data["notes"]) == 2


def test_without_optuna_the_page_says_how_to_install_it(search, tmp_path, monkeypatch):
    search(losses=LOSSES[:1])
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda library: None)
    data = page_data([], tmp_path / "runs")
    assert data["searches"] == {} and len(data["runs"]) == 2
    assert "the panel of a search needs optuna; pip install" in data["notes"][-1]


def test_watching_sees_a_trial_that_ends(search, tmp_path):
    search(losses=LOSSES[:1])
    before = newest(tmp_path / "runs")
    with (tmp_path / "runs" / "sweeps" / "search-1" / JOURNAL).open("a") as journal:
        journal.write("\n")
    assert newest(tmp_path / "runs") != before


def test_the_panels_of_one_objective(search, open_runs):
    search(losses=(5.0, 4.5, 4.75, 4.25, 4.0))
    shown = open_runs()
    assert shown.text("#found") == "search-1: minimize validation_loss; 7 trials: 1 failed, 1 pruned, 5 done."
    assert shown.count("#trials .symbol") == 5 and shown.count("#trials .line") == 1
    # the best so far is a staircase of two points for each trial after the first
    assert shown.js("return document.querySelector('#trials .line').getAttribute('d').split('L').length") == 9
    assert shown.count("#importance .bar") == 2
    assert shown.js(
        "return [...document.querySelectorAll('#importance .bar')].every((bar) => bar.getAttribute('width') > 0)"
    )
    assert shown.box("#front")["height"] == 0 and shown.box("#search")["width"] == 0
    shown.press("#trials svg", "\ue015", "\ue014", "\ue007")
    chosen = shown.js("return state.run")
    assert chosen.startswith("search-1-") and f": {chosen}" in shown.text("#trials .tip div")
    assert shown.count("#trials .symbol.selected") == 1 and shown.count("#table [aria-selected=true]") > 0
    assert shown.complaints() == [] and len(shown.requests()) == 1


def test_the_panels_of_several_objectives_and_searches(search, open_runs):
    search("search-1", minimize=["validation_loss", "parameters"], maximize=["tokens_per_second"])
    search("search-2", maximize=["tokens_per_second"], losses=(4.0, 5.0, 4.5))
    shown = open_runs(700)
    assert shown.options("search") == ["search-1", "search-2"]
    # three objectives: rings, and no line between them
    assert shown.count("#front .symbol") == shown.count("#front .ring") == 4
    shown.choose("search", "search-2")
    assert shown.options("objective") == ["validation_loss", "tokens_per_second"]
    assert shown.count("#front .ring") == 3 and shown.count("#front path.front") == 1
    assert shown.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    # too few trials
    assert shown.box("#importance")["height"] == 0
    assert "Validation loss" in shown.text("#trials svg")
    shown.choose("objective", "tokens_per_second")
    assert "Speed (tokens/s)" in shown.text("#trials svg") and "Validation loss" in shown.text("#front svg")
    assert shown.complaints() == []


def test_runs_without_a_search_have_no_such_panel(make, open_runs):
    make("a")
    shown = open_runs()
    assert shown.box("#of-search")["height"] == 0 and shown.complaints() == []
