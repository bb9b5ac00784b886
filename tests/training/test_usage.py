"""What a run uses of its machine, in several processes and several starts, with numbers by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.measure.throughput import Throughput
from experiments.training import summary
from experiments.training.run import Run
from experiments.training.usage import ProcessUsage, Usage

PROCESSES = [ProcessUsage(100, 7.0), ProcessUsage(300, 8.0)]


def test_a_run_uses_what_all_its_processes_use_in_all_its_starts():
    run = SimpleNamespace(
        usage_by_process=lambda: PROCESSES,
        earlier=Usage(10.0, 20.0, peak_memory_bytes=200, cells_at_once=3, waited_for_cores=0.1),
        throughput=SimpleNamespace(elapsed=lambda: 5.0),
        neighbours=SimpleNamespace(cells_at_once=2, waited_share=lambda: None),
    )
    assert Run.usage(run) == Usage(15.0, 35.0, peak_memory_bytes=300, cells_at_once=3, waited_for_cores=0.1)


def test_the_larger_of_two_starts_counts_whichever_it_is():
    small, large = (Usage(1.0, 2.0, size, size, size / 10) for size in (2, 5))
    assert small.followed_by(large) == large.followed_by(small) == Usage(2.0, 4.0, 5, 5, 0.5)
    assert Usage().followed_by(Usage()).waited_for_cores is None


@pytest.mark.parametrize(("seconds", "reached"), [(9.9, False), (10.0, True)])
def test_the_time_of_earlier_starts_counts_towards_the_limit(seconds, reached):
    run = SimpleNamespace(
        earlier=Usage(wall_seconds=50.0),
        throughput=SimpleNamespace(elapsed=lambda: seconds),
        progress=SimpleNamespace(step=3),
        planned=None,
        settings=SimpleNamespace(trainer=SimpleNamespace(max_minutes=1)),
    )
    run.wall_seconds = Run.wall_seconds.fget(run)
    assert Run.limit_reached(run) == reached


def test_speed_and_memory_are_those_of_all_devices_and_the_utilisation_is_that_of_one(monkeypatch):
    monkeypatch.setattr(summary, "mfu", lambda speed, flops, device, precision: (speed, flops, precision))
    run = SimpleNamespace(
        throughput=Throughput([800.0, 800.0]),
        usage_by_process=lambda: PROCESSES,
        memory=SimpleNamespace(meaning=""),
        model=SimpleNamespace(parameter_counts=dict, flops_per_token=lambda length, share: 10.0 * length * share),
        settings=SimpleNamespace(length=16),
        objective=SimpleNamespace(predicted_share=0.5),
        forward=SimpleNamespace(device=None, precision="bf16"),
        world=SimpleNamespace(size=4),
    )
    found = summary.speed_and_memory(run)
    assert (found["tokens_per_second"], found["peak_memory_of_all_bytes"]) == (800.0, 400)
    assert found["mfu"] == (200.0, 80.0, "bf16")
