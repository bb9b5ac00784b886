"""What `attn bench` makes of the times that it measures, with times by hand."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from experiments.bench import rounds, side_by_side, worker
from experiments.bench.contenders import Contender, Work
from experiments.bench.rounds import Timing, timed
from experiments.bench.worker import Turn
from experiments.config.compose import compose
from experiments.measure.roofline import Rates

SIZES = ["hidden_size=16", "heads=2", "length=9", "batch_size=2", "trainer.device=cpu", "precision=fp32"]


def test_rounds_go_there_and_back_and_repeat_what_is_short(monkeypatch):
    taken = []

    class Noting:
        def __init__(self, contender):
            self.name, self.seconds = contender

        def __enter__(self):
            return self

        def __exit__(self, *failure):
            return None

        def work(self):
            return Work(1, 1.0, 1.0)

        def go(self, times):
            taken.append((self.name, times))
            return Turn(self.seconds, 1, [])

    monkeypatch.setattr(rounds, "Worker", Noting)
    timings = timed([("a", 0.2), ("b", 2.0)], 3)
    # the first turns are warm-up; a timing takes half a second or more
    assert taken == [("a", 1), ("b", 1), ("a", 3), ("b", 1), ("b", 1), ("a", 3), ("a", 3), ("b", 1)]
    assert [timing.seconds for timing in timings] == [3 * [0.2], 3 * [2.0]]


def test_numbers_are_medians_and_speeds_those_of_ratios_in_a_round(monkeypatch):
    seconds = ([3.0, 3.0, 3.0], [1.0, 1.5, 6.0])
    work = Work(tokens=18, flops=6e9, moved_bytes=1.0)

    def measured(contenders, count):
        warm = Turn(100.0, 7, ["reference"])
        return [Timing([Turn(each, 8, [], 0.25) for each in times], warm, work) for times in seconds]

    monkeypatch.setattr(side_by_side, "timed", measured)
    monkeypatch.setattr(side_by_side, "measure_rates", lambda *_: Rates(1e10, 1e10))
    cells = [compose([*SIZES, f"variant={variant}"]) for variant in ("multi_head", "gated")]
    (first, second), left_out = side_by_side.compare(cells, "attention", 3, peers=False, compiled=False)
    assert not left_out and [row["speed/first"] for row in (first, second)] == [1.0, 2.0]
    # quartiles of 1.25 and 3.75 seconds
    assert (second["milliseconds"], second["spread"], second["tokens_per_second"]) == (1500.0, 2500.0, 12.0)
    assert second["floor_share"] == pytest.approx(0.6 / 1.5)
    assert (second["peak_bytes"], second["waited_for_cores"]) == (7, 0.25)


def test_a_turn_is_the_mean_of_its_runs_and_its_memory_is_that_above_the_contender(monkeypatch):
    contender, runs, answers = Contender(compose(SIZES), "attention"), [], []

    @contextmanager
    def asked():
        yield iter([contender._asdict() | {"settings": contender.settings.model_dump()}, 4]), answers.append

    def measured(call, device):
        before = len(runs)
        call()
        return 2.0 * (len(runs) - before)

    built = SimpleNamespace(run=lambda: runs.append(1), work=Work(18, 1.0, 1.0), kernels=lambda: ["reference"])
    monkeypatch.setattr(worker, "questions", asked)
    monkeypatch.setattr(worker, "build", lambda contender: built)
    monkeypatch.setattr(worker, "seconds", measured)
    monkeypatch.setattr(worker, "PeakMemory", lambda _: SimpleNamespace(baseline_bytes=1000, peak_bytes=lambda: 1500))
    worker.main()
    work, turn = answers
    assert work == built.work._asdict() and len(runs) == 1 + 4, "one before the timing"
    assert (turn["seconds"], turn["peak_bytes"], turn["kernels"]) == (2.0, 500, ["reference"])
