"""A cell that cannot begin fails with a reason, and the others go on. If the parent fails, all are told to end."""

from __future__ import annotations

import signal
import sys

import pytest

from experiments.cells import runner
from experiments.cells.cell import folder_of
from experiments.cells.resources import ResourcePool
from experiments.cells.runner import run_cells
from experiments.processes import child


def test_a_cell_whose_output_file_cannot_be_opened_ends_no_other(cell, monkeypatch):
    blocked, other = cell(), cell("seed=1")
    output = folder_of(blocked).path / "output.txt"
    output.mkdir(parents=True)
    ends = {"args": [sys.executable, "-c", "raise SystemExit('it has run')"]}
    monkeypatch.setattr(child, "process_arguments", lambda *_: ends)
    reasons = [outcome.reason for outcome in run_cells([blocked, other], ResourcePool(1))]
    why = f"{output}: a folder stands where a file should be; remove it, or set runs= (or --runs) to another folder"
    assert reasons == [why, "it has run"]


def test_a_cell_for_which_the_system_has_no_process_ends_no_other(cell, monkeypatch):
    programs = iter([["/nowhere/python"], [sys.executable, "-c", "raise SystemExit('it has run')"]])
    monkeypatch.setattr(child, "process_arguments", lambda *_: {"args": next(programs)})
    reasons = [outcome.reason for outcome in run_cells([cell(), cell("seed=1")], ResourcePool(1))]
    assert reasons == ["no process could be started: No such file or directory", "it has run"]


def test_if_the_parent_fails_all_cells_are_told_before_it_waits_for_one(cell, monkeypatch):
    done = []

    class Process:
        def __init__(self, assignment, output):
            output.close()

        def poll(self):
            return None

        def send_signal(self, number):
            done.append(number)

        def close(self):
            done.append("closed")

    def watch(running, blocked):
        raise ZeroDivisionError

    monkeypatch.setattr(runner, "SpawnedCell", Process)
    with pytest.raises(ZeroDivisionError):
        run_cells([cell(), cell("seed=1")], ResourcePool(2), watch=watch)
    assert done == [signal.SIGTERM, signal.SIGTERM, "closed", "closed"]
