"""A job of submitit that is about to lose its cores."""

from __future__ import annotations

import os
import signal

import pytest

from experiments.launch.submitit_jobs import saved_before_requeue
from experiments.processes.interruption import Interrupted, Interruption

submitit = pytest.importorskip("submitit", reason="needs attn[slurm]")
NUMBER = getattr(signal, f"SIG{submitit.JobEnvironment.USR_SIG}")


@pytest.fixture
def events():
    """What happens, in order; a handler in place of submitit's appends "requeued"."""
    happened: list[str] = []
    earlier = signal.signal(NUMBER, lambda *_: happened.append("requeued"))
    yield happened
    signal.signal(NUMBER, earlier)


def train(events: list[str], number: int | None = None) -> None:
    """A training that receives a signal in the middle of a step."""
    with Interruption() as interruption:
        with interruption.deferred():
            if number is not None:
                signal.raise_signal(number)
            events.append("step")
        if interruption.pending:
            events.append("saved")
        interruption.check()


def test_a_cell_saves_before_its_job_is_requeued(events):
    with saved_before_requeue():
        train(events, NUMBER)
    assert events == ["step", "saved", "requeued"]


def test_a_cell_that_ends_in_time_is_not_requeued(events):
    with saved_before_requeue():
        train(events)
    assert events == ["step"]
    signal.raise_signal(NUMBER)
    assert events == ["step", "requeued"]


@pytest.fixture
def preempted_at(tmp_path, monkeypatch):
    """preempted_at(time): from now on, Slurm shows this as the time at which the job was preempted."""

    def show(time: str) -> None:
        scontrol = tmp_path / "scontrol"
        shown = f"JobId=7 PreemptTime={time} EndTime=Unknown"
        scontrol.write_text(f'#!/bin/sh\n[ "$*" = "show job 7" ] && echo "{shown}"\n')
        scontrol.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return show


def test_a_cell_saves_before_its_preempted_job_is_requeued(events, preempted_at):
    preempted_at("2026-11-26T11:53:20")
    with saved_before_requeue():
        train(events, signal.SIGTERM)
    assert events == ["step", "saved", "requeued"]


@pytest.mark.parametrize("executor", ["slurm", "local"])
def test_another_signal_ends_the_job(events, preempted_at, monkeypatch, executor):
    preempted_at("None" if executor == "slurm" else "2026-11-26T11:53:20")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", executor)
    with pytest.raises(Interrupted), saved_before_requeue():
        train(events, signal.SIGTERM)
    assert events == ["step", "saved"]
