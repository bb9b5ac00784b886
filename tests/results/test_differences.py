"""Differences from a baseline: the numbers are those of the statistics room, and the words follow from them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from experiments.record.result import UNKNOWN
from experiments.results.configurations import Configuration
from experiments.results.differences import MARGIN, baselines, differences, measured, summary
from experiments.statistics.evidence import Anytime, interval


def made(losses: dict[str, dict[int, float]], talking: Collection[str] = (), **more):
    """(configurations, results) of losses by seed; `more`: fields of every result.

    talking: the names of those that have talking heads; the others have plain ones.
    """
    results, configurations = [], {}
    for number, (name, by_seed) in enumerate(losses.items()):
        configuration = Configuration(name, 0)
        for seed, loss in by_seed.items():
            configuration.runs.append(len(results))
            configuration.finished[seed] = len(results)
            ended = {"status": "done", "validation_loss": loss, "unigram_loss": 9.0, "late_gain": 0.0, "seed": seed}
            config = {"variant": {"name": "talking_heads" if name in talking else "multi_head"}}
            results.append(UNKNOWN | ended | {"config": config} | more)
        configurations[number] = configuration
    return configurations, results


def of(base: float, *more: float) -> dict[int, float]:
    return {seed: base + seed / 10 + each for seed, each in enumerate(more)}


NOISE = (0.001, -0.002, 0.0015, 0.0, -0.001, 0.0005)


def test_differences_are_paired_by_seed_and_their_interval_is_the_anytime_valid_one():
    losses = {"base": of(5, 0, 0, 0, 0, 0, 0), "low": of(4.9, *NOISE), "high": of(5.2, *NOISE), "same": of(5, *NOISE)}
    found = differences(0, measured(*made(losses)))
    expected = [losses["low"][seed] - losses["base"][seed] for seed in range(6)]
    low, high = interval(Anytime(), expected)
    assert found[1]["mean"] - found[1]["half"] == pytest.approx(low)
    assert found[1]["mean"] + found[1]["half"] == pytest.approx(high)
    assert found[1]["seeds"] == pytest.approx(expected) and found[1]["n"] == 6
    assert [found[number]["word"] for number in (1, 2, 3)] == ["better", "worse", "no difference"]
    assert 0 not in found and abs(found[3]["mean"]) + found[3]["half"] < MARGIN


def test_a_difference_of_less_than_a_hundredth_is_none_and_one_of_more_is():
    losses = {"base": of(5, 0, 0, 0, 0, 0, 0)}
    losses |= {str(mean): of(5 + mean, *(each / 10 for each in NOISE)) for mean in (0.009, 0.011, -0.009, -0.011)}
    found = differences(0, measured(*made(losses)))
    assert [found[number]["word"] for number in (1, 2, 3, 4)] == ["no difference", "worse", "better", "better"]


def test_the_other_way_round_the_words_are_turned_round():
    configurations, results = made({"base": of(5, 0, 0, 0, 0, 0, 0), "low": of(4.9, *NOISE)})
    there, back = (differences(number, measured(configurations, results))[1 - number] for number in (0, 1))
    assert (there["word"], back["word"]) == ("better", "worse") and there["mean"] == pytest.approx(-back["mean"])


def test_few_seeds_have_no_interval_and_no_word():
    configurations, results = made({"base": of(5, 0, 0, 0), "low": of(4.9, *NOISE[:3])})
    assert differences(0, measured(configurations, results))[1]["half"] is None
    assert differences(0, measured(configurations, results))[1]["word"] == "not resolved"
    alone = made({"base": {0: 5.0}, "low": {0: 4.0}, "elsewhere": {1: 4.0}})
    assert differences(0, measured(*alone))[1]["word"] == "not resolved" and 2 not in differences(0, measured(*alone))


def test_more_comparisons_make_each_harder():
    clear = {"base": of(5, 0, 0, 0, 0, 0), "low": of(4.9, 0.01, -0.02, 0.015, 0.0, -0.01)}
    clear["same"] = of(5, 0.001, -0.001, 0.0005, 0.0, -0.0005)
    assert [differences(0, measured(*made(clear)))[number]["word"] for number in (1, 2)] == ["better", "no difference"]
    many = clear | {f"noise {number}": of(5, 0.3, -0.3, 0.2, -0.2, 0.1) for number in range(200)}
    found = differences(0, measured(*made(many)))[1]
    assert found["word"] == "better alone" and "seeds in all would resolve it" in found["why"]
    assert differences(0, measured(*made(many)))[2]["word"] == "no difference alone"
    # without an interval that excludes zero there is no such word
    assert differences(0, measured(*made(many)))[3]["word"] == "not resolved"


def test_a_single_pair_makes_no_other_comparison_harder():
    clear = {"base": of(5, 0, 0, 0, 0, 0), "low": of(4.9, 0.01, -0.02, 0.015, 0.0, -0.01)}
    many = clear | {f"single {number}": {0: 5.3} for number in range(200)}
    found = differences(0, measured(*made(many)))
    assert found[1]["word"] == "better" and found[2]["word"] == "not resolved"


def test_what_has_not_begun_to_learn_or_still_learns_or_diverged_is_not_tested():
    losses = {"base": of(5, 0, 0, 0, 0, 0, 0), "low": of(4.9, *NOISE)}
    plateau = differences(0, measured(*made(losses, unigram_loss=5.0)))[1]
    assert plateau["word"] == "not tested" and "low ended less than 0.5 nats below unigram_loss" in plateau["why"]
    learning = differences(0, measured(*made(losses, late_gain=0.2)))[1]
    assert learning["word"] == "not tested" and "in the last tenth of the training" in learning["why"]
    unknown = differences(0, measured(*made(losses, late_gain=None)))[1]
    assert unknown["word"] == "not tested"
    assert "low had no evaluation before the last tenth of the steps with 6 of 6 seeds" in unknown["why"]
    configurations, results = made(losses)
    configurations[1].runs.append(len(results))
    results.append({"status": "nan", "validation_loss": None, "seed": 6})
    assert differences(0, measured(configurations, results))[1]["why"] == "low diverged with 1 of 7 seeds"


def test_the_first_baseline_is_multi_head_with_most_seeds_whatever_its_loss():
    losses = {"a": of(4, 0, 0, 0), "b": of(5, 0), "c": of(6, 0, 0), "d": of(5.5, 0, 0)}
    configurations, results = made(losses, talking={"a"})
    # without a loss there is nothing to compare with
    configurations[4] = Configuration("none", 0, [len(results)])
    results.append(UNKNOWN | {"status": "nan"})
    assert baselines(measured(configurations, results)) == [2, 3, 1, 0]


def test_a_summary_is_mean_error_and_half_of_the_interval():
    assert summary([]) == {"mean": None, "error": None, "half": None}
    assert summary([3.0]) == {"mean": 3.0, "error": None, "half": None}
    found = summary([1.0, 2.0, 3.0, 6.0])
    assert found["mean"] == 3.0 and found["error"] == pytest.approx((14 / 3 / 4) ** 0.5)
    assert found["half"] == pytest.approx(Anytime().half_width(4, (14 / 3) ** 0.5))
