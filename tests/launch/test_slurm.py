"""Sweeps over a real Slurm, which scripts/slurm.sh starts on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.record.folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "slurm.sh"
NEEDED = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "scontrol")
SUBMIT = ("hydra/launcher=submitit_slurm", "hydra.launcher.partition=main", "hydra.launcher.cpus_per_task=1")

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def slurm(tmp_path_factory, environment):
    """The environment in which Slurm's commands find a cluster of one node."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs attn[slurm]")
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install slurm-wlm munge slurmdbd mariadb-server")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    folder = tmp_path_factory.mktemp("slurm")
    subprocess.run([SCRIPT, "start", folder], check=True, timeout=300)
    yield environment | {"SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run([SCRIPT, "stop", folder], check=True, timeout=120)


def test_cells_are_jobs_of_an_array_and_what_is_done_is_skipped(slurm, tiny, tmp_path):
    words = ["train", "-m", "seed=0,1", *SUBMIT, *tiny]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), *words],
            cwd=tmp_path, env=slurm, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    results = [RunFolder(path).result() for path in (tmp_path / "runs").glob("multi_head-*")]
    assert [result.status for result in results] == ["done", "done"]
    jobs = subprocess.run(["sacct", "-X", "-n", "-o", "State"], env=slurm, capture_output=True, text=True, check=True)
    assert jobs.stdout.split() == ["COMPLETED"] * 4
    assert [*(tmp_path / "runs" / "sweeps").glob("*/.submitit/*")]
