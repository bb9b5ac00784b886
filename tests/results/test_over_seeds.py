"""Configurations over their seeds: means, deviations, and paired differences, on results of known content."""

from __future__ import annotations

import math

import pytest

from experiments.failures.failure import Mistake
from experiments.record.result import Fields
from experiments.results.over_seeds import DIFFERENCE, tables_over_seeds
from tests.fixtures.record import small_result


def seeds(name: str, *losses: float | None, first: int = 0, **settings: object) -> list[Fields]:
    return [small_result(f"{name}{seed}", loss, seed, **settings) for seed, loss in enumerate(losses, first)]


def test_a_case_worked_by_hand():
    six = seeds("six", 5.0, 5.1, 5.2, 5.3)
    many = seeds("many", 4.9, 4.98, 5.12, 5.2, heads=24)
    for result, speed in zip(many, (4000.0, 4400.0, 4200.0, 4600.0), strict=True):
        result["tokens_per_second"] = speed
    ((base, row),) = tables_over_seeds([*six, *many], ["heads=6"])
    assert (base["configuration"], row["configuration"]) == ("heads 6", "heads 24")
    assert (base["heads"], row["heads"], row["key_size"], row["seeds"]) == (6, 24, 8, 4)
    assert base["loss"] == pytest.approx(5.15) and row["loss"] == pytest.approx(5.05)
    # the squares of 0.15, 0.05, 0.05 and 0.15 over three
    assert base["loss_deviation"] == pytest.approx(math.sqrt(0.05 / 3))
    assert row["tokens_per_second"] == pytest.approx(4300.0) and base["tokens_per_second"] == 5000.4
    assert (row["parameters"], row["steps"], row["peak_memory_bytes"]) == (2_000_000, 800, 5 * 10**8)
    assert not {"seed", "run", "status", "backend", "perplexity", "conditions"} & row.keys()
    # the differences are -0.10, -0.12, -0.08 and -0.10, with g = 4: 1 + n g = 17
    deviation, q = math.sqrt(0.0008 / 3), (17 * 20**2) ** (1 / 4)
    half = deviation * math.sqrt(3 * (q - 1) / (1 - q / 17) / 4)
    assert half == pytest.approx(0.0589, abs=5e-5)
    difference = (row["difference"], row["difference_low"], row["difference_high"])
    assert difference == pytest.approx((-0.1, -0.1 - half, -0.1 + half))
    assert (row["pairs"], row["verdict"], row["why"]) == (4, "better", None)
    assert [base[column] for column in DIFFERENCE] == [None, None, None, None, "baseline", None]


def test_only_shared_seeds_are_paired_and_a_mean_is_over_its_own():
    ((base, row, apart),) = tables_over_seeds(
        [*seeds("a", 5.0, 5.5), *seeds("b", 5.0, 5.8, first=1, heads=24), *seeds("c", 4.0, first=7, heads=12)],
        ["heads=6"],
    )
    assert (row["loss"], row["seeds"], row["difference"], row["pairs"]) == (5.4, 2, -0.5, 1)
    # one pair has no interval, and nothing in common no difference
    assert (row["difference_low"], row["difference_high"], row["verdict"]) == (None, None, "not resolved")
    assert [apart[column] for column in DIFFERENCE] == [None] * 6
    assert apart["loss_deviation"] is None and base["loss_deviation"] == pytest.approx(math.sqrt(0.125))


def test_a_run_without_a_loss_enters_no_mean_and_its_configuration_decides_nothing():
    ((base, row, none),) = tables_over_seeds(
        [*seeds("a", 5.0, 5.1), *seeds("b", 4.0, 4.1, None, heads=24), *seeds("c", None, heads=12)], ["heads=6"]
    )
    assert (base["verdict"], row["seeds"], row["loss"]) == ("baseline", 2, pytest.approx(4.05))
    assert (row["verdict"], row["why"]) == ("not tested", "heads 24 diverged with 1 of 3 seeds")
    assert (none["seeds"], none["loss"], none["parameters"], none["verdict"]) == (0, None, None, None)


def test_each_set_of_conditions_has_a_table_and_a_baseline():
    short = [*seeds("a", 5.0, 5.1, max_steps=40), *seeds("b", 4.9, 5.0, heads=24, max_steps=40)]
    long = [*seeds("c", 4.0, max_steps=60), *seeds("d", 3.5, heads=24, max_steps=60)]
    first, second = tables_over_seeds([*long, *short], ["heads=24"])
    assert {row["conditions"] for row in first} == {"max_steps 40"} and len(first) == len(second) == 2
    assert [(row["heads"], row["max_steps"], row["verdict"]) for row in second] == [
        (6, 60, "not resolved"),
        (24, 60, "baseline"),
    ]
    assert [row["difference"] for row in second] == [0.5, None]
    # only some conditions may have a baseline
    first, second = tables_over_seeds([*long, *short], ["max_steps=60"])
    assert {row["verdict"] for row in first} == {None} and second[0]["verdict"] == "baseline"


def test_the_baseline_is_the_most_suitable_of_those_that_agree():
    results = [
        *seeds("a", 5.0, 5.0, start="identity"),
        *seeds("b", 4.0, 4.0, heads=24),
        *seeds("c", 3.0, heads=24, start="identity"),
    ]

    def baseline(*wanted: str) -> str:
        ((name,),) = [
            [row["configuration"] for row in rows if row["verdict"] == "baseline"]
            for rows in tables_over_seeds(results, [*wanted])
        ]
        return name

    # most seeds, then the first
    assert baseline() == "heads 6" and baseline("heads=24") == "heads 24, start random"
    assert baseline("heads=6") == baseline("heads=6", "variant.start=identity") == "heads 6"
    assert baseline("heads=24", "variant.start=identity") == "heads 24"
    with pytest.raises(Mistake, match="head=6: no run has such a setting"):
        baseline("head=6")


def test_pretraining_and_each_task_have_tables_and_scores_have_deviations():
    tuned = seeds("tuned", 0.5, 0.7, task={"name": "sst2"})
    for result, accuracy in zip(tuned, (90.0, 92.0), strict=True):
        result["scores"] = {"accuracy": accuracy}
    (plain,), (row,) = tables_over_seeds([*tuned, *seeds("a", 5.0, 5.1)], [])
    assert "accuracy" not in plain and plain["loss"] == pytest.approx(5.05)
    assert (row["task"], row["accuracy"], row["loss"]) == ("sst2", 91.0, pytest.approx(0.6))
    assert row["accuracy_deviation"] == pytest.approx(math.sqrt(2))


def test_a_run_whose_settings_are_not_known_is_of_no_configuration():
    unknown = small_result("x", None) | {"config": None, "status": "changed"}
    ((row,),) = tables_over_seeds([unknown, *seeds("a", 5.0)], [])
    assert row["configuration"] == "talking_heads" and row["seeds"] == 1
    assert tables_over_seeds([unknown], []) == []


def test_an_imported_run_is_of_no_configuration():
    imported = small_result("bert", None, max_steps=800) | {"status": "imported"}
    assert tables_over_seeds([imported, *seeds("a", 5.0)], []) == tables_over_seeds(seeds("a", 5.0), [])
    assert tables_over_seeds([imported], []) == []
