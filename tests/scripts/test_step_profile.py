"""scripts/step_profile.py: where a step's time goes."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from experiments.processes.environment_variables import ADDED

ROOT = Path(__file__).parents[2]
TINY = ["layers=2", "hidden_size=16", "heads=2", "length=16", "batch_size=2", "tokenizer.vocabulary_size=300"]


@pytest.mark.parametrize("peer", [[], ["--peer", "hugging_face"]])
def test_the_kinds_of_work_add_up(peer, monkeypatch, capsys):
    script = ROOT / "scripts" / "step_profile.py"
    # it is tuned already, or it would begin anew in this process's place
    monkeypatch.setenv(ADDED, "")
    monkeypatch.setattr(sys, "argv", [str(script), *peer, *TINY])
    runpy.run_path(str(script), run_name="__main__")
    found = re.findall(r"^(\S.*\S) +([\d,]+\.\d+) +\d\S*$", capsys.readouterr().out, re.MULTILINE)
    times = {name: float(time.replace(",", "")) for name, time in found}
    total = times.pop("all")
    assert {"linear maps", "attention kernel", "activation", "norms", "optimizer", "the rest"} <= times.keys()
    assert sum(times.values()) == pytest.approx(total, rel=1e-3)
