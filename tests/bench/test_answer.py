"""The cost of an answer, computed by hand and measured by training."""

import json
import math

import numpy as np
import pytest

from experiments.bench.answer import highest_deviation, seeds_to_resolve
from experiments.statistics.evidence import Anytime


@pytest.mark.parametrize(("difference", "deviation"), [(0.02, 0.02), (0.02, 0.05), (0.1, 0.01), (-0.02, 0.02)])
def test_the_seeds_are_the_first_whose_interval_leaves_zero_out(difference, deviation):
    count = seeds_to_resolve(difference, deviation)
    assert Anytime().half_width(count, deviation) <= abs(difference) < Anytime().half_width(count - 1, deviation)


def test_a_difference_far_below_the_spread_takes_too_many_seeds():
    assert seeds_to_resolve(1e-4, 1.0) is None


def test_the_bound_of_a_deviation_is_kept_nine_times_in_ten():
    # 4 values: the 10% quantile of chi squared with 3 degrees of freedom is 0.584
    assert highest_deviation(1.0, 4) == pytest.approx(math.sqrt(3 / 0.5844), rel=1e-3)
    deviations = np.random.default_rng(0).normal(size=(4000, 4)).std(1, ddof=1)
    assert np.mean([highest_deviation(each, 4) > 1 for each in deviations]) == pytest.approx(0.9, abs=0.02)


def test_the_command_trains_pairs_and_says_what_they_resolve(attn, tiny, tmp_path):
    words = ["bench", *tiny, "variant=multi_head,talking_heads", "heads=2", "--scope", "answer"]
    done = attn(*words, "--seeds", "2", "--difference", "10", "--format", "json", "--workers", "1")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first["contender"] == "multi_head" and first["difference"] is None
    results = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").glob("*/result.json"))]
    losses = {(each["config"]["variant"]["name"], each["seed"]): each["validation_loss"] for each in results}
    differences = [losses["talking_heads", seed] - losses["multi_head", seed] for seed in (0, 1)]
    assert second["difference"] == pytest.approx(np.mean(differences))
    assert second["spread"] == pytest.approx(np.std(differences, ddof=1))
    minutes = sum(each["processor_seconds"] for each in results) / 2 / 60
    assert second["answer_minutes"] == pytest.approx(second["seeds"] * minutes)


def test_a_row_shows_every_setting_that_is_varied(attn, tiny):
    words = [word for word in tiny if not word.startswith("max_steps")]
    varied = ("learning_rate=1e-3,2e-3", "norm=pre,post")
    done = attn(
        "bench", *words, "max_steps=1", "heads=2", *varied, "--scope", "answer", "--seeds", "2", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    shown = [(row["norm"], row["learning_rate"]) for row in json.loads(done.stdout)]
    assert sorted(shown) == [("post", 1e-3), ("post", 2e-3), ("pre", 1e-3), ("pre", 2e-3)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["variant=multi_head"], "--scope answer compares configurations"),
        (["variant=multi_head,talking_heads", "seed=0,1"], "seed=0,1: --scope answer chooses the seeds itself"),
        (["variant=multi_head,talking_heads", "seed=1"], "seed=1: --scope answer chooses the seeds itself"),
        (["--seeds", "1"], "--seeds 1: must be at least 2"),
        (["--difference", "nan"], "--difference nan: must be a number of nats above 0"),
        (["--workers", "none"], "--workers none"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_trained(attn, words, said, tmp_path):
    done = attn("bench", *words, "--scope", "answer")
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "runs").exists()
