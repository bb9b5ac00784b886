"""Which runs are compared: configurations over seeds, under one set of conditions, finished."""

from __future__ import annotations

import shutil

import pytest

from experiments.dashboard.comparable import comparable
from experiments.dashboard.page import page_data
from experiments.record.folder import RunFolder
from tests.fixtures.record import leave_result


@pytest.fixture
def grouped(make, tmp_path):
    """grouped(): configurations, each with its conditions, and the numbers of its finished and other seeds."""

    def read() -> dict:
        data = page_data([], tmp_path / "runs")
        says = [each["says"] for each in data["comparisons"]]
        return {
            (each["name"], says[each["comparison"]]): (len(each["ended"]), len(each["runs"]) - len(each["ended"]))
            for each in data["configurations"]
        }

    return read


def test_seeds_are_one_configuration_and_only_finished_ones_count(make, grouped):
    make("a0", seed=0)
    make("a1", seed=1)
    make("a2", seed=2, finished=False)
    make("b0", heads=24)
    assert grouped() == {("heads 6", ""): (2, 1), ("heads 24", ""): (1, 0)}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_steps": 60}, ("max_steps 40", "max_steps 60")),
        ({"batch_size": 8}, ("batch_size 4", "batch_size 8")),
        ({"data": {"kind": "text"}}, ("data.kind python_docs", "data.kind text")),
        ({"objective": {"kind": "masked", "rate": 0.4}}, ("objective.rate 0.15", "objective.rate 0.4")),
        ({"tokenizer": {"vocabulary_size": 99}}, ("tokenizer.vocabulary_size 9", "tokenizer.vocabulary_size 99")),
    ],
)
def test_another_budget_corpus_tokenizer_or_objective_is_another_comparison(make, grouped, more, said):
    alike = {"max_steps": 40, "batch_size": 4, "data": {"kind": "python_docs"}, "tokenizer": {"vocabulary_size": 9},
             "objective": {"kind": "masked", "rate": 0.15}}  # fmt: skip
    for seed in (0, 1):
        make(f"a{seed}", seed=seed, **alike)
    make("b", **alike | more)
    make("c", heads=12, **alike | more)
    assert grouped() == {
        ("heads 6", said[0]): (2, 0),
        ("heads 6", said[1]): (1, 0),
        ("heads 12", said[1]): (1, 0),
    }


def test_another_text_under_the_same_settings_is_another_comparison(make, grouped):
    for seed, text in ((0, "aa"), (1, "aa"), (2, "bb")):
        folder = make(f"a{seed}", seed=seed)
        leave_result(folder, **RunFolder(folder).result().to_dict() | {"corpus": {"kind": "text", "sha256": text}})
    # its text is known when it has ended: until then it stands beside those of the same settings
    make("a3", seed=3, finished=False)
    assert grouped() == {("multi_head", "corpus.sha256 aa"): (2, 1), ("multi_head", "corpus.sha256 bb"): (1, 0)}


def test_conditions_are_told_apart_in_few_words(make, grouped):
    masked, causal = {"kind": "masked", "rate": 0.4}, {"kind": "causal"}
    for name, objective, text in (("a", masked, "aa"), ("b", causal, "bb"), ("c", masked | {"rate": 0.2}, "aa")):
        folder = make(name, objective=objective)
        leave_result(folder, **RunFolder(folder).result().to_dict() | {"corpus": {"sha256": text}})
    masked_says = {f"objective.kind masked, objective.rate {rate}" for rate in (0.4, 0.2)}
    assert {says for _, says in grouped()} == {"objective.kind causal", *masked_says}
    # the rate belongs to masked tokens
    shutil.rmtree(folder)
    assert {says for _, says in grouped()} == {"objective.kind causal", "objective.kind masked"}


def test_a_run_without_a_loss_is_not_finished():
    result = {"status": "done", "validation_loss": None, "seed": 0, "config": {}}
    row = {"variant": "multi_head", "seed": 0}
    (only,) = comparable([result], [row], ["variant", "seed"]).configurations
    assert only.name == "multi_head" and only.runs == [0] and only.finished == {}


def test_the_conditions_of_most_runs_stand_first():
    results = [
        {"status": "done", "validation_loss": 1.0, "seed": seed, "config": {"max_steps": steps}}
        for steps, seeds in ((60, 1), (40, 3), (20, 2))
        for seed in range(seeds)
    ]
    rows = [{"variant": "multi_head", "seed": result["seed"]} for result in results]
    found = comparable(results, rows, ["variant", "seed"])
    assert found.comparisons == ["max_steps 40", "max_steps 20", "max_steps 60"]
    assert {len(each.runs): each.comparison for each in found.configurations} == {3: 0, 2: 1, 1: 2}


def test_a_name_leaves_out_the_group_of_a_setting_and_what_most_have(make, grouped):
    for heads in (6, 12):
        for position in ("rotary", "learned"):
            make(f"{heads}-{position}", heads=heads, model={"position": position, "intermediate_size": 384})
    make("wide", heads=6, model={"position": "rotary", "intermediate_size": 768})
    assert {name for name, _ in grouped()} == {
        "heads 6",
        "heads 6, position learned",
        "heads 12",
        "heads 12, position learned",
        "heads 6, intermediate_size 768",
    }


def test_runs_that_differ_in_more_than_the_seed_are_apart(make, grouped):
    for seed in (0, 1):
        make(f"talking{seed}", variant="talking_heads", seed=seed, learning_rate=1e-3)
        # the seed alone would tell these two apart
        make(f"plain{seed}", seed=seed, learning_rate=(1e-3, 2e-3)[seed])
    assert grouped() == {
        ("talking_heads, learning_rate 0.001", ""): (2, 0),
        ("multi_head, learning_rate 0.001", ""): (1, 0),
        ("multi_head, learning_rate 0.002", ""): (1, 0),
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"learning_rate": 2e-3}, "learning_rate 0.002"),
        ({"norm": "post"}, "norm post"),
        ({"optimizer": {"clip": 5.0}}, "clip 5.0"),
    ],
)
def test_a_name_says_what_differs_besides_the_variant(make, grouped, more, said):
    alike = {"learning_rate": 1e-3, "optimizer": {"clip": 1.0}}
    make("plain", **alike)
    make("talking", variant="talking_heads", **alike | more)
    assert [name for name, _ in grouped()][1] == f"talking_heads, {said}"
