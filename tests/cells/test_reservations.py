"""Cores and GPUs that each job of a machine reserves for itself."""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from types import SimpleNamespace

import pytest

from experiments.cells.resources import Resources, pool_for, reserved_pool
from experiments.cells.runner import run_cell, run_cells
from experiments.failures.failure import Failure
from experiments.measure import devices, hardware
from experiments.processes import child

PINNED = hasattr(os, "sched_setaffinity")


@pytest.fixture
def job(four_cores, two_gpus):
    """job(): the resources as another job of the machine would reserve them."""
    return reserved_pool


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


def test_the_cells_of_two_sweeps_are_never_on_one_gpu(cell, job):
    one, two = (pool_for([cell()] * 4, "auto") for _ in range(2))
    assert [one.acquire(cell()) for _ in range(3)] == [Resources(device="4"), Resources(device="6"), None]
    assert two.acquire(cell()) is None and job().acquire(cell()) is None
    # cells on a CPU wait for no other sweep
    assert two.acquire(cell("seed=1")).cores == (2,)
    one.release(Resources(device="6"))
    assert two.acquire(cell()) == Resources(device="6") and one.acquire(cell()) is None


def test_sweeps_share_a_gpu_if_all_of_them_allow_it(cell, job):
    one, two = (pool_for([cell()] * 9, "auto", per_device=3) for _ in range(2))
    alone = pool_for([cell()] * 9, "auto")
    assert alone.acquire(cell()) == Resources(device="4")
    # each counts the cells of both
    assert [pool.acquire(cell()) for pool in (one, two, one, two)] == [*[Resources(device="6")] * 3, None]
    assert alone.acquire(cell()) is None
    for _ in range(2):
        one.release(Resources(device="6"))
    assert alone.acquire(cell()) is None
    two.release(Resources(device="6"))
    assert alone.acquire(cell()) == Resources(device="6")
    assert one.acquire(cell()) is None


def test_a_sweep_says_that_it_waits_for_the_gpus_of_another(cell, job, monkeypatch):
    process = {"args": [sys.executable, "-c", "import sys; sys.exit('it ran')"], "env": None}
    monkeypatch.setattr(child, "process_arguments", lambda *_: process)
    other, seen = job(), []
    held = [other.acquire(cell("trainer.devices=2"))]

    def watch(running, blocked):
        seen.append(blocked)
        if len(seen) == 3:
            other.release(held.pop())

    (outcome,) = run_cells([cell()], pool_for([cell()], "auto"), watch=watch)
    assert outcome.reason == "it ran" and seen[:4] == [True, True, True, False] and not any(seen[4:])


@pytest.fixture
def machine(monkeypatch):
    """machine(names, listed): how this process names its GPUs, and the lines of NVIDIA's driver about them."""

    def see(names, *listed):
        monkeypatch.setattr(hardware, "visible_gpus", lambda: names)
        monkeypatch.setattr(devices, "_gpu_uuids", cache(devices._gpu_uuids.__wrapped__))
        answer = SimpleNamespace(stdout="".join(f"{line}\n" for line in listed))
        monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: answer)

    return see


def test_a_gpu_is_reserved_by_its_uuid_and_not_by_its_number(cell, job, machine):
    first, second = "(UUID: GPU-aaaa1111)", "(UUID: GPU-bbbb2222)"
    machine(
        ["0"], f"GPU 0: NVIDIA H100 80GB HBM3 {first}", "  MIG 1g.10gb Device 0: (UUID: MIG-c)", f"GPU 1: X {second}"
    )
    one, two, three = job(), job(), job()
    assert one.acquire(cell()) == Resources(device="0")
    machine(["GPU-aaaa", "GPU-bbbb"], f"GPU 0: X {first}", f"GPU 1: X {second}")
    assert two.acquire(cell()) == Resources(device="GPU-bbbb")
    two.release(Resources(device="GPU-bbbb"))
    # in a job of a cluster that sees the second one alone, its number is 0
    machine(["0"], f"GPU 0: X {second}")
    assert three.acquire(cell()) == Resources(device="0") and two.acquire(cell()) is None


def test_a_place_for_reservations_that_cannot_be_used_is_named(cell, job, tmp_path):
    (tmp_path / f"attn-reservations-{os.getuid()}").write_text("in the way")
    with pytest.raises(Failure, match=r"attn-reservations-\d+(?s:.)*set TMPDIR"):
        job().acquire(cell())


def test_a_job_waits_until_its_cores_are_free(cell, job, monkeypatch):
    process = {"args": [sys.executable, "-c", "import sys; sys.exit('it ran')"], "env": None}
    monkeypatch.setattr(child, "process_arguments", lambda *_: process)
    other, ends = job(), []
    held = other.acquire(cell("seed=1", "trainer.threads=4"))
    waiting = threading.Timer(0.7, lambda: (ends.append("released"), other.release(held)))
    waiting.start()
    outcome = run_cell(cell("seed=1"), job())
    assert outcome.reason == "it ran" and ends == ["released"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_reservations_of_a_process_that_dies_are_free(cell, job, tmp_path):
    ready, sign = os.pipe()
    child = os.fork()
    if child == 0:
        own = job()
        assert own.acquire(cell("seed=1", "trainer.threads=4"))
        os.write(sign, b"x")
        os.read(ready, 0)
        while True:
            threading.Event().wait(60)
    assert os.read(ready, 1) == b"x"
    assert job().acquire(cell("seed=1")) is None
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert job().acquire(cell("seed=1")) == Resources((2,), PINNED)
    assert {path.name for path in tmp_path.glob("attn-reservations-*/core-*")} == {f"core-{n}" for n in (2, 3, 5, 7)}
