"""scripts/step_profile.py: where a step's time goes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = ["layers=2", "hidden_size=16", "heads=2", "length=16", "batch_size=2", "tokenizer.vocabulary_size=300"]


@pytest.mark.parametrize("peer", [[], ["--peer", "hugging_face"]])
def test_the_kinds_of_work_add_up(peer):
    command = [sys.executable, str(ROOT / "scripts" / "step_profile.py"), *peer, *TINY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"^(\S.*\S) +(\d+\.\d+) +\d\S*$", done.stdout, re.MULTILINE)
    times = {name: float(time) for name, time in found}
    total = times.pop("all")
    assert {"linear maps", "attention kernel", "activation", "norms", "optimizer", "the rest"} <= times.keys()
    assert sum(times.values()) == pytest.approx(total, rel=1e-3)
