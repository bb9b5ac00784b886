"""Cores and GPUs that jobs of one machine claim from each other."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from experiments.cells import claims, resources, worker
from experiments.cells.claims import ClaimedResources
from experiments.cells.resources import Resources
from experiments.cells.worker import run_cell
from experiments.config.compose import compose
from experiments.measure import devices

PINNED = hasattr(os, "sched_setaffinity")


@pytest.fixture
def cell(tiny, tmp_path):
    """cell("trainer.threads=2", ...) -> Settings"""
    return lambda *words: compose([*tiny, f"runs={tmp_path / 'runs'}", *words])


@pytest.fixture
def job(tmp_path, monkeypatch):
    """job(): the resources as another job of a machine of four cores and two GPUs would claim them."""
    for module in (claims, resources):
        monkeypatch.setattr(module, "usable", lambda: [2, 3, 5, 7])
    for module in (resources, devices):
        monkeypatch.setattr(module, "on_gpu", lambda settings: settings.seed == 0)
    monkeypatch.setattr("experiments.measure.hardware.visible_gpus", lambda: ["4", "6"])
    return lambda: ClaimedResources(tmp_path / "claims")


def test_jobs_have_cores_of_their_own(cell, job):
    one, two, three = job(), job(), job()
    pair = cell("seed=1", "trainer.threads=2")
    first = one.acquire(cell("seed=1"))
    assert first == Resources((2,), PINNED)
    assert two.acquire(pair) == Resources((3, 5), PINNED)
    # one core is left, and a job that needs two takes none of it
    assert three.acquire(pair) is None
    assert three.acquire(cell("seed=1")) == Resources((7,), PINNED)
    one.release(first)
    assert one.acquire(pair) is None and one.acquire(cell("seed=1")) == first


def test_jobs_have_a_gpu_of_their_own(cell, job):
    one, two, three = job(), job(), job()
    first = one.acquire(cell())
    assert first == Resources(device="4") and two.acquire(cell()) == Resources(device="6")
    assert three.acquire(cell()) is None and three.acquire(cell("trainer.devices=2")) is None
    one.release(first)
    second = cell().trainer.model_copy(update={"device": "cuda:1"})
    assert three.acquire(cell().model_copy(update={"trainer": second})) is None
    assert three.acquire(cell()) == Resources(device="4")


def test_a_job_waits_until_its_cores_are_free(cell, job, monkeypatch):
    process = {"args": [sys.executable, "-c", "import sys; sys.exit('it ran')"], "env": None}
    monkeypatch.setattr(worker, "process_arguments", lambda *_: process)
    other, ends = job(), []
    held = other.acquire(cell("seed=1", "trainer.threads=4"))
    waiting = threading.Timer(0.7, lambda: (ends.append("released"), other.release(held)))
    waiting.start()
    outcome = run_cell(cell("seed=1"), job())
    assert outcome.reason == "it ran" and ends == ["released"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_claims_of_a_process_that_dies_are_free(cell, job, tmp_path):
    ready, sign = os.pipe()
    child = os.fork()
    if child == 0:
        assert job().acquire(cell("seed=1", "trainer.threads=4"))
        os.write(sign, b"x")
        os.read(ready, 0)
        while True:
            threading.Event().wait(60)
    assert os.read(ready, 1) == b"x"
    assert job().acquire(cell("seed=1")) is None
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert job().acquire(cell("seed=1")) == Resources((2,), PINNED)
    assert {path.name for path in Path(tmp_path / "claims").glob("*/core-*")} == {f"core-{n}" for n in (2, 3, 5, 7)}
