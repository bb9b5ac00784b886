"""The process that times the steps of rows, one after the other."""

from __future__ import annotations

import os
import time

import pytest
from rich.console import Console

from experiments.processes.answering import Answerer
from experiments.tables.sources import step_clock
from experiments.tables.sources.step_clock import StepClock


def test_steps_of_one_row_after_the_other_are_timed_in_one_process(tiny, tmp_path, capfd, with_kernel):
    from experiments.config.compose import compose

    masked = compose([*tiny, f"cache={with_kernel(tmp_path / 'cache')}"])
    pairs = ["model=transformer_nano", "layers=1", "hidden_size=32", "length=8", "batch_size=2", "trainer.device=cpu"]
    pairs.append("tokenizer.vocabulary_size=300")
    with StepClock(Console()) as clock:
        assert clock.seconds(masked) > 0 and clock.seconds(compose(pairs)) > 0
        answerer = clock._answerer
        no_heads = masked.model_copy(update={"variant": {**masked.variant, "heads": 0}})
        assert clock.seconds(no_heads) is None and clock._answerer is answerer
        answerer.process.kill()
        assert clock.seconds(masked) is None and clock._answerer is None
    printed = capfd.readouterr().out
    assert printed.count("not timed: ") == 2 and "not timed: killed by SIGKILL" in printed and "heads" in printed
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("times", "median"), [([50.0, 0.2, 0.4, 0.3, 0.2], 0.25), ([50.0, *[0.01] * 5, *[0.03] * 4], 0.01)]
)
def test_the_first_step_does_not_count_and_of_long_ones_there_are_fewer(tiny, tmp_path, monkeypatch, times, median):
    from experiments.config.compose import compose

    left = iter(times)
    monkeypatch.setattr("experiments.measure.timing.seconds", lambda call, device: next(left))
    assert step_clock.step_seconds(compose([*tiny, f"cache={tmp_path}"])) == median
    assert next(left, None) is None


def test_an_end_while_the_kernel_is_built_leaves_no_process_and_no_file(tiny, tmp_path, monkeypatch):
    from experiments.config.compose import compose

    compiler, started = tmp_path / "compiler", tmp_path / "started"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo $$ > {started}; exec sleep 60;; esac\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    settings = compose([*tiny, f"cache={tmp_path / 'cache'}", "variant=talking_heads", "backend=auto"])
    with Answerer(step_clock.MODULE) as answerer:
        answerer.send(settings.model_dump())
        deadline = time.monotonic() + 60
        while not (started.exists() and started.read_text().strip()):
            assert answerer.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    assert [path.name for path in tmp_path.rglob("cache/**/*") if path.is_file()] == ["lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.campaign
def test_a_row_that_ends_the_process_leaves_the_next_one_its_time(tiny, tmp_path, with_kernel):
    from experiments.config.compose import compose

    masked = compose([*tiny, f"cache={with_kernel(tmp_path / 'cache')}"])
    with StepClock(Console()) as clock:
        assert clock.seconds(masked) > 0
        clock._answerer.process.kill()
        assert clock.seconds(masked) is None and clock.seconds(masked) > 0
