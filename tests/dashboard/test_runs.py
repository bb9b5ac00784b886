"""Which runs the page reads, and in which state."""

from __future__ import annotations

import fcntl
import math

import pytest

from experiments.dashboard.curves import curve_of
from experiments.dashboard.runs import chosen_runs
from experiments.failures.failure import Mistake
from experiments.results.index import Index


@pytest.fixture
def chosen(tmp_path):
    def choose(*which):
        with Index(tmp_path / "runs") as index:
            return chosen_runs(list(which), tmp_path / "runs", index)

    return choose


def test_a_comma_means_either(make, chosen):
    for name, variant, heads in (("a", "multi_head", 6), ("b", "talking_heads", 6), ("c", "additive", 12)):
        make(name, variant=variant, heads=heads)
    assert [run["run"] for run in chosen("variant=multi_head,additive")] == ["a", "c"]
    assert [run["run"] for run in chosen("variant=multi_head,additive", "heads=12,24")] == ["c"]
    assert [run["run"] for run in chosen("a", "b")] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["heds=6"], "heds=6: no run has such a setting.*heads"),
        (["heads=7"], "matches heads=7$|matches heads=7\n"),
        (["zz"], "no run 'zz'"),
        (["variant=mutli_head"], r"variant=mutli_head \(did you mean multi_head\?\)"),
    ],
)
def test_mistakes(make, chosen, words, said):
    make("a")
    with pytest.raises(Mistake, match=said):
        chosen(*words)


def test_a_run_that_goes_on_has_the_numbers_it_has_reached(make, chosen):
    folder = make("a", finished=False)
    (run,) = chosen()
    assert (run["status"], run["validation_loss"], run["steps"], run["tokens"]) == ("unfinished", 4.5, 40, 4000)
    assert run["perplexity"] == math.exp(4.5) and run["tokens_per_second"] == 50.0 and run["seed"] == 0
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert chosen()[0]["status"] == "running"


def test_a_run_without_a_line_yet_is_there(make, chosen, tmp_path):
    folder = make("a", finished=False)
    (folder / "metrics.jsonl").unlink()
    (run,) = chosen()
    assert run["validation_loss"] is None
    with Index(tmp_path / "runs") as index:
        assert curve_of(folder, index)["training"] == {}


def test_a_damaged_run_is_marked_or_left_out_and_said(make, chosen, capsys):
    make("a")
    (make("b") / "result.json").write_text("{")
    (make("c", finished=False) / "config.yaml").write_text("heads: 6\n")
    assert [(run["run"], run["status"], run.get("validation_loss")) for run in chosen()] == [
        ("a", "done", 4.5),
        ("b", "changed", None),
    ]
    said = capsys.readouterr().err
    assert "changed: " in said and "b/result.json" in said and "left out: " in said


def test_of_many_damaged_runs_the_first_are_named_and_the_others_counted(make, chosen, capsys):
    make("z")
    for number in range(14):
        (make(f"a{number:02}") / "result.json").write_text("{")
    assert len(chosen()) == 15
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("changed: ") for line in said] == [True] * 10 + [False]
    assert "a09/" in said[9] and said[10] == "and 4 more like these"


def test_an_index_follows_a_run_that_goes_on(make, chosen):
    folder = make("a", losses=(6.0, 5.0), finished=False)
    assert chosen()[0]["validation_loss"] == 5.5
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "tokens": 3000, "loss": 4.0, "validation_loss": 4.25, "wall_seconds": 3.0}\n')
    assert chosen()[0]["validation_loss"] == 4.25 and chosen()[0]["steps"] == 30
