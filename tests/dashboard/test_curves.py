"""Curves of runs and of configurations, thinned and averaged by hand-worked rules."""

from __future__ import annotations

import json

import pytest

from experiments.dashboard.curves import averaged, evenly, evenly_of, mean_curve, parse_metrics
from experiments.statistics.evidence import Anytime


def test_neighbours_become_one_with_their_mean_where_the_last_stands():
    columns = {"step": [10, 20, 30, 40, 50], "loss": [4.0, 2.0, None, 1.0, None]}
    assert averaged(columns, 5) is columns
    assert averaged(columns, 3) == {"step": [20, 40, 50], "loss": [3.0, 1.0, None]}
    assert averaged({}, 3) == {}


def test_evenly_keeps_the_first_and_the_last():
    assert evenly([1, 2, 3], 3) == [1, 2, 3]
    assert evenly(list(range(101)), 5) == [0, 25, 50, 75, 100]
    assert evenly([1, 2, 3], 1) == [1]
    assert evenly_of({"step": [1, 2, 3], "loss": [4, 5, 6]}, 2) == {"step": [1, 3], "loss": [4, 6]}


def test_metrics_become_columns():
    first = {"step": 10, "tokens": 100, "wall_seconds": 1.5, "loss": "inf", "validation_loss": 6.0}
    second = {"step": 20, "tokens": 200, "wall_seconds": 3.0, "loss": 5.0, "perplexity": 148.4, "gradient_norm": 1.5}
    content = json.dumps(first) + "\n" + json.dumps(second) + '\n{"step": 30, "lo'
    curve = parse_metrics(content.encode())
    places = {"step": [10, 20], "tokens": [100, 200], "seconds": [1.5, 3.0]}
    # what follows from the loss is left out
    assert curve["training"] == places | {"loss": [None, 5.0], "gradient_norm": [None, 1.5]}
    assert curve["validation"] == {"step": [10], "tokens": [100], "seconds": [1.5], "loss": [6.0]}
    assert (curve["lines"], curve["evaluations"]) == (2, 1)
    assert curve["last"]["steps"] == 20 and parse_metrics(b"")["last"] == {}


def test_a_configuration_has_means_at_the_steps_that_all_its_runs_have():
    runs = [{"step": [1, 2, 3], "seconds": [1.0, 2.0, 3.0], "loss": [4.0 + seed, 3.0 + seed, 9.0]} for seed in range(3)]
    runs.append({"step": [1, 2], "seconds": [5.0, 6.0], "loss": [7.0, 6.0]})
    mean = mean_curve(runs)
    assert mean["step"] == [1, 2] and mean["seconds"] == [2.0, 3.0] and mean["loss"] == [5.5, 4.5]
    # losses of 0, 1, 2 and 3 more than the first
    assert mean["half"] == pytest.approx(2 * [Anytime().half_width(4, (5 / 3) ** 0.5)])
    assert mean_curve(runs[:3])["half"] == [None, None, None] and "half" not in mean_curve(runs[:1])
    assert mean_curve([]) == mean_curve([{}, {}]) == {}


def test_a_mean_that_lacks_a_run_has_no_interval():
    runs = [{"step": [1, 2], "loss": [4.0 + seed, 3.0]} for seed in range(6)]
    assert mean_curve(runs)["half"][1] == 0.0
    runs[0]["loss"] = [4.0, None]
    mean = mean_curve(runs)
    assert mean["loss"] == [6.5, 3.0] and mean["half"][0] > 0 and mean["half"][1] is None
