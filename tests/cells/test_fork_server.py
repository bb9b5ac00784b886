"""Cells in forked processes give the same results as in fresh ones, bit by bit, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from experiments.cells import fork_server, resources
from experiments.cells.assignment import Assignment
from experiments.cells.fork_server import ForkedCell, ForkServer, _Server, can_fork
from experiments.cells.outcome import Outcome
from experiments.cells.resources import ResourcePool
from experiments.cells.runner import run_cell, run_cells
from experiments.config.compose import compose
from experiments.measure.cores import usable
from experiments.processes import child
from experiments.search.study import MedianPruner
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from tests.fixtures.outcome import MEASURED

pytestmark = pytest.mark.skipif(not can_fork(), reason="a fork is no whole process here")


@pytest.fixture(scope="module")
def server():
    with ForkServer() as server:
        assert server.refusal is None
        yield server


@pytest.fixture(scope="module")
def cache(tiny, tmp_path_factory, with_kernel):
    """A cache with the kernel and the corpus, so that no cell starts a process that makes the corpus."""
    cache = with_kernel(tmp_path_factory.mktemp("cache"))
    task_of(compose([*tiny, f"cache={cache}"])).prepare(lambda *stage: None)
    return cache


# imports what a server imports, and begins a cell; prints which functions the server called that ask for GPUs, which
# programs the cell started before its first step, and its imports, without two small modules of Python's and torch's
ASKED = """\
import subprocess, sys, torch
from experiments.cells import fork_server
asked = []
for name in ("is_available", "device_count", "_lazy_init", "current_device", "get_device_properties"):
    own = getattr(torch.cuda, name)
    setattr(torch.cuda, name, lambda *words, name=name, own=own: asked.append(name) or own(*words))
fork_server._import_training_stack()
print(asked)
started = []
popen = subprocess.Popen.__init__
subprocess.Popen.__init__ = lambda self, *words, **named: started.append(words) or popen(self, *words, **named)
from experiments.cells.cell import execute
from experiments.config.compose import compose
from experiments.training import train
settings = compose(sys.argv[1:])
before = {*sys.modules, "encodings.ascii", "torch.profiler._cupti_monitor"}
train.advance = lambda run: sys.exit(print(started, {*sys.modules} - before, sep="\\n"))
execute(settings)
"""


def test_an_assignment_is_read_as_it_was_written(tmp_path):
    pruner = MedianPruner(tmp_path / "study", number=3, after_trials=2, after_step=100)
    for assignment in (Assignment(tmp_path), Assignment(tmp_path / "l\u00e4ufe", (0, 2), "GPU-1", 4, pruner)):
        line = assignment.to_line()
        assert "\n" not in line and Assignment.from_line(line.encode()) == assignment


def test_a_server_asks_for_no_gpu_and_does_for_its_cells_whatever_is_the_same_for_all(tiny, cache, tmp_path):
    words = [*tiny, f"cache={cache}", f"runs={tmp_path}"]
    done = subprocess.run([sys.executable, "-c", ASKED, *words], capture_output=True, text=True)
    asked, started, imported = done.stdout.splitlines()
    assert asked == started == "[]", done.stderr
    assert imported == "set()", done.stderr


def test_a_process_in_which_a_driver_of_gpus_has_begun_is_not_forked(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "STATUS", tmp_path / "status")
    monkeypatch.setattr(fork_server, "OPEN_FILES", tmp_path / "fd")
    (tmp_path / "status").write_text("Threads:\t1\n")
    (tmp_path / "fd").mkdir()
    (tmp_path / "fd" / "0").symlink_to("/dev/null")
    assert fork_server.why_unforkable() is None
    (tmp_path / "fd" / "4").symlink_to("/dev/nvidiactl")
    assert fork_server.why_unforkable() == "an imported library has begun to use CUDA"
    (tmp_path / "status").write_text("Threads:\t3\n")
    assert fork_server.why_unforkable() == "an imported library has started 2 threads"


def test_a_forked_cell_sees_the_gpus_of_its_assignment_only(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for gpus in ("6,GPU-aaaa", None):
        if (process := os.fork()) == 0:
            try:
                _Server(os.dup(1))._become_cell(Assignment.from_line(Assignment(tmp_path, gpus=gpus).to_line()))
                # what a library in C sees
                os.execlp("printenv", "printenv", "CUDA_VISIBLE_DEVICES")
            finally:
                os._exit(1)
        assert os.waitpid(process, 0)[1] == 0
    assert (tmp_path / "output.txt").read_text() == "6,GPU-aaaa\n0,1\n"


# stand-ins for a server: one breaks at its first assignment, another refuses to fork, and the last ends after an answer
BREAKS = """\
print('{"refusal": null}', flush=True)
input()
raise AssertionError("an imported library has started 2 threads")
"""
REFUSES = """print('{"refusal": "an imported library has begun to use CUDA"}')"""
ANSWERS = """\
import json
print('{"refusal": null}', flush=True)
print(json.dumps({"folder": json.loads(input())["folder"], "code": 7}))
"""


@pytest.fixture
def programs(monkeypatch):
    """The programs that are started from now on, each in place of a module."""
    programs = []
    monkeypatch.setattr(
        child, "process_arguments", lambda module, *_: {"args": [sys.executable, "-c", programs.pop(0), module]}
    )
    return programs


def test_the_cell_of_a_broken_server_says_why_and_after_a_refusal_cells_have_interpreters_of_their_own(cell, programs):
    programs += [BREAKS, REFUSES, *2 * ["import sys; sys.exit(f'{sys.argv[1]} has run')"]]
    with ForkServer() as server:
        outcomes = run_cells([cell(f"seed={seed}") for seed in range(3)], ResourcePool(1), server)
        assert server.refusal == "an imported library has begun to use CUDA"
    assert [outcome.reason for outcome in outcomes] == [
        "AssertionError: an imported library has started 2 threads",
        "experiments.cells.cell has run",
        "experiments.cells.cell has run",
    ]


def test_the_last_answer_of_a_server_that_has_ended_counts(programs, tmp_path):
    programs.append(ANSWERS)
    with ForkServer() as server:
        cell = server.start(Assignment(tmp_path))
        server._process.wait()
        assert cell.poll() == 7


@pytest.fixture
def cells(tiny, tmp_path, cache):
    """cells("forked", "max_steps=9", ...): two cells that differ in their variant, in a folder of that name."""

    def make(name: str, *words: str) -> list[Settings]:
        replaced = {word.split("=")[0] for word in words}
        kept = [word for word in tiny if word.split("=")[0] not in replaced]
        fixed = [*kept, *words, f"runs={tmp_path / name}", f"cache={cache}", "model.dropout=0.1"]
        return [compose([*fixed, f"variant={variant}"]) for variant in ("multi_head", "talking_heads")]

    return make


def numbers_of(outcome: Outcome) -> dict:
    """Everything that is the same wherever and however often a cell runs."""
    assert outcome.done, outcome.reason
    folder = outcome.folder
    metrics = [{key: line[key] for key in line.keys() - MEASURED} for line in folder.metrics.read()]
    tensors = {path.name: load_file(path) for path in sorted(folder.checkpoint.glob("*.safetensors"))}
    bits = {file: {name: each.numpy().tobytes() for name, each in read.items()} for file, read in tensors.items()}
    return {"metrics": metrics, "checkpoints": bits, "loss": outcome.result.validation_loss}


def test_forked_cells_side_by_side_are_those_of_fresh_processes_bit_by_bit(server, cells):
    at_once = min(2, len(usable()))
    forked = run_cells(cells("forked"), ResourcePool(at_once, pinned=True), server)
    fresh = run_cell(cells("fresh")[0])
    assert forked[0].folder.name == fresh.folder.name
    assert numbers_of(forked[0]) == numbers_of(fresh) != numbers_of(forked[1])
    assert [outcome.result.cells_at_once for outcome in (*forked, fresh)] == [at_once, at_once, 1]
    environment = forked[0].folder.environment()
    assert environment["usable_cores"] == 1 and environment["torch"]["threads"] == 1
    # the memory of a cell counts only its own, although its process began as a copy of another
    assert forked[0].result.peak_memory_bytes == pytest.approx(fresh.result.peak_memory_bytes, rel=0.05)
    assert (forked[0].folder.path / "output.txt").read_text().count(": done\n") == 1


def test_cells_on_gpus_are_forked_too(server, cells, monkeypatch):
    # in the cells themselves, which know nothing of this, the device is the CPU
    monkeypatch.setattr(resources, "on_gpu", lambda settings: True)
    monkeypatch.setattr(resources, "gpus_for", lambda settings: ["4", "6"])
    seen = set()
    outcomes = run_cells(
        cells("gpus"), ResourcePool(2), server,
        lambda running, blocked: seen.update((type(cell.process), cell.resources.device) for cell in running),
    )  # fmt: skip
    assert all(outcome.done for outcome in outcomes), outcomes
    assert seen == {(ForkedCell, "4"), (ForkedCell, "6")}


@pytest.mark.campaign
def test_a_cell_that_cannot_train_ends_no_other(server, cells):
    wrong, right = cells("mixed", "data.train=/nowhere/text.txt")[0], cells("mixed")[1]
    outcomes = run_cells([wrong, right], ResourcePool(1), server)
    assert [outcome.done for outcome in outcomes] == [False, True]
    assert "/nowhere/text.txt" in outcomes[0].reason
    assert not outcomes[0].folder.path.exists()


@pytest.mark.campaign
def test_cells_leave_no_descriptor_behind(server, cells, scale):
    # cells that are done already take processes that do next to nothing
    done = run_cells(cells("again"), ResourcePool(2), server)
    assert all(outcome.done for outcome in done)

    def held() -> int:
        return sum(len([*Path(f"/proc/{process}/fd").iterdir()]) for process in ("self", server._process.pid))

    before = held()
    again = run_cells([cell for _ in range(3 * scale) for cell in cells("again")], ResourcePool(1), server)
    assert {numbers_of(outcome)["loss"] for outcome in again} == {numbers_of(outcome)["loss"] for outcome in done}
    assert held() == before and not server._codes


@pytest.mark.campaign
def test_after_the_end_of_a_server_its_cells_save_and_the_next_cell_has_another(cells, tmp_path):
    long, short = cells("long", "max_steps=100000", "trainer.compile=false")[0], cells("long")[1]
    with ForkServer() as server:
        folders = []

        def watch(running, blocked) -> None:
            for cell in running:
                if cell.folder.metrics.last_step() > 8 and not folders:
                    folders.append(cell.folder)
                    os.kill(server._process.pid, signal.SIGKILL)

        outcomes = run_cells([long, short], ResourcePool(1), server, watch)
        assert [outcome.done for outcome in outcomes] == [False, True]
        assert outcomes[0].reason.startswith("killed by SIGKILL")
        end = time.monotonic() + 30
        while not (result := folders[0].path / "result.json").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        assert json.loads(result.read_text())["status"] == "interrupted"


@pytest.mark.campaign
def test_leaving_the_block_ends_the_cells(cells, tmp_path):
    long = cells("left", "max_steps=100000", "trainer.compile=false")[0]

    def watch(running, blocked) -> None:
        if any(cell.folder.metrics.last_step() > 4 for cell in running):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"), ForkServer() as server:
        run_cells([long], ResourcePool(1), server, watch)
    (result,) = Path(long.runs).glob("*/result.json")
    assert json.loads(result.read_text())["status"] == "interrupted"
