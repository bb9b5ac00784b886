"""Workers of joblib that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.launch.launchers import killed_workers_endured
from tests.launch.sweeps import check_reserved, instead, runs, statuses, until

joblib = pytest.importorskip("joblib", reason="needs attn[joblib]")
pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs attn[joblib]")
ROOT = Path(__file__).resolve().parents[2]
# long enough to be stopped in the middle
LONG = ("max_steps=300", "trainer.log_every=50", "trainer.evaluate_every=300", "trainer.checkpoint_every=100")


def test_a_worker_that_is_killed_ends_the_block_without_an_error():
    with killed_workers_endured():
        joblib.Parallel(n_jobs=2)(joblib.delayed(signal.raise_signal)(signal.SIGKILL) for _ in range(2))
        pytest.fail("joblib went on")


def test_errors_of_another_kind_leave_the_block():
    with pytest.raises(ZeroDivisionError), killed_workers_endured():
        raise ZeroDivisionError


@pytest.mark.campaign
def test_a_sweep_reports_cells_whose_worker_was_killed_and_trains_them_when_it_is_repeated(
    environment, shell, tiny, tmp_path, monkeypatch
):
    monkeypatch.setitem(environment, "TMPDIR", str(tmp_path))
    words = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1,2", *instead(LONG, tiny)]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "cli.py"), "train", *words],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until(lambda: runs(tmp_path) and all(any(run.checkpoint.glob("*.safetensors")) for run in runs(tmp_path)))
    workers = [each for each in psutil.Process(process.pid).children() if "LokyProcess" in " ".join(each.cmdline())]
    workers[0].send_signal(signal.SIGKILL)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 3, said
    assert "3 of 3 cells failed; the same command tries them again" in said
    again = shell("train", *words, cwd=tmp_path)
    assert again.returncode == 0, again.output
    assert statuses(tmp_path) == ["done"] * 3
    check_reserved(tmp_path)
