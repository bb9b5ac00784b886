"""scripts/slurm.sh: its words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm.sh"


@pytest.mark.parametrize("words", [[], ["start"], ["restart", "folder"]])
def test_the_usage_is_said(words):
    done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr == f"usage: {SCRIPT} start|stop FOLDER [CORES [NODES]]\n"
