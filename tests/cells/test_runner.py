"""A cell that cannot begin fails with a reason, and the others go on."""

from __future__ import annotations

import sys

from experiments.cells import runner
from experiments.cells.cell import folder_of
from experiments.cells.resources import ResourcePool
from experiments.cells.runner import run_cells


def test_a_cell_whose_output_file_cannot_be_opened_ends_no_other(cell, monkeypatch):
    blocked, other = cell(), cell("seed=1")
    output = folder_of(blocked).path / "output.txt"
    output.mkdir(parents=True)
    ends = {"args": [sys.executable, "-c", "raise SystemExit('it has run')"]}
    monkeypatch.setattr(runner, "process_arguments", lambda *_: ends)
    reasons = [outcome.reason for outcome in run_cells([blocked, other], ResourcePool(1))]
    why = f"{output}: a folder stands where a file should be; remove it, or set runs= (or --runs) to another folder"
    assert reasons == [why, "it has run"]
