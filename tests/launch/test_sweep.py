"""Sweeps as a user runs them: real processes, one of them really killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeperConf
from hydra.core.config_store import ConfigStore

from experiments.commands.train import launch
from experiments.config.compose import compose
from experiments.launch import worker as runner

ROOT = Path(__file__).resolve().parents[2]


def statuses(runs: Path) -> list[str]:
    return sorted(json.loads(path.read_text())["status"] for path in runs.glob("*/result.json"))


def child_of(folder: Path) -> int:
    """Process that trains in a run folder."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"experiments.launch.cell" in words and str(folder).encode() in words:
            return int(entry.parent.name)
    raise AssertionError(f"nobody trains in {folder}")


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_sweep_trains_every_cell_and_skips_what_is_done(attn, tiny, tmp_path):
    words = ["train", "-m", "variant=multi_head,talking_heads", "heads=2", *tiny]
    first = attn(*words)
    assert first.returncode == 0, first.stdout + first.stderr
    assert statuses(tmp_path / "runs") == ["done", "done"]
    again = attn(*words)
    assert again.returncode == 0
    assert again.stdout.count("done before") == 2
    rows = json.loads(attn("compare", "--format", "json").stdout)
    assert {row["variant"] for row in rows} == {"multi_head", "talking_heads"}
    assert attn("compare", "variant=talking_heads", "--format", "csv").stdout.count("\n") == 2


@pytest.mark.campaign
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the cell's process by /proc")
def test_a_killed_cell_ends_alone_and_is_continued_by_the_same_command(attn, tiny, tmp_path, environment):
    words = ["train", "-m", "heads=1,2", *tiny, "max_steps=40"]
    words = [word for word in words if word != "max_steps=12"]
    sweep = subprocess.Popen(
        [sys.executable, str(ROOT / "cli.py"), *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    runs = tmp_path / "runs"
    # the first cell is killed after a checkpoint, in the middle of its training
    wait_for(lambda: any(runs.glob("*h1-*/checkpoint/step-*4.safetensors")))
    (folder,) = runs.glob("*h1-*")
    os.kill(child_of(folder), signal.SIGKILL)
    output, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 3, output
    assert "killed by SIGKILL" in output
    assert statuses(runs) == ["done"], "the other cell went on"
    again = attn(*words)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "going on from step" in (folder / "log.txt").read_text()
    assert statuses(runs) == ["done", "done"]


@pytest.mark.campaign
def test_a_cell_saves_and_ends_when_its_sweep_is_killed(tiny, tmp_path, environment):
    words = [*(word for word in tiny if not word.startswith("max_steps")), "max_steps=100000"]
    sweep = subprocess.Popen(
        [sys.executable, str(ROOT / "cli.py"), "train", "-m", "heads=1,2", *words], cwd=tmp_path, env=environment
    )
    runs = tmp_path / "runs"
    wait_for(lambda: any(runs.glob("*h1-*/checkpoint/step-*4.safetensors")))
    sweep.kill()
    sweep.wait()
    (folder,) = runs.glob("*h1-*")
    wait_for(lambda: (folder / "result.json").exists())
    assert statuses(runs) == ["interrupted"]


def test_a_failed_cell_gives_its_reason_and_the_sweep_goes_on(attn, tiny, tmp_path):
    # the first cell's text is too short for one batch, which only its data can show
    words = [word for word in tiny if not word.startswith("batch_size")]
    done = attn("train", "-m", "batch_size=100000,4", *words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "100,000" in done.stdout or "100000" in done.stdout
    assert "1 of 2 cells failed" in done.stdout
    assert statuses(tmp_path / "runs").count("done") == 1


def test_a_cell_that_leaves_no_folder_behind_gives_its_reason_too(attn, tiny, tmp_path):
    # what its preparation refuses is left behind by no run, and so neither is what the cell said
    short = tmp_path / "short.txt"
    short.write_text("too few words")
    words = [word for word in tiny if not word.startswith("data.train")]
    done = attn("train", "-m", f"data.train={short}", "seed=0,1", *words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "2 of 2 cells failed" in done.stdout and done.stdout.count("output.txt") == 0
    assert done.stdout.count("the train split has") == 4, done.stdout


def test_the_reason_is_the_mistake_and_not_its_hint(tiny, tmp_path, monkeypatch):
    said = "there is no such library\n  pip install it"
    process = {"args": [sys.executable, "-c", f"import sys; sys.exit({said!r})"], "env": None}
    monkeypatch.setattr(runner, "child", lambda module, folder: process)
    outcome = runner.run_cell(compose([*tiny, f"runs={tmp_path / 'runs'}"]))
    assert not outcome.done and outcome.reason == "there is no such library"


def test_the_reason_is_of_this_attempt_and_not_of_one_before(tiny, tmp_path, monkeypatch):
    reasons = []
    for code in ("import sys; sys.exit('the first')", "import os; os._exit(9)"):
        process = {"args": [sys.executable, "-c", code], "env": None}
        monkeypatch.setattr(runner, "child", lambda module, folder, process=process: process)
        reasons.append(runner.run_cell(compose([*tiny, f"runs={tmp_path / 'runs'}"])).reason)
    assert reasons == ["the first", "ended with code 9"]


@pytest.mark.campaign
def test_hydras_joblib_launcher_runs_the_same_cells(shell, tiny, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    done = shell("train", "-m", "heads=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(tmp_path / "runs") == ["done", "done"]


def test_the_cells_of_another_sweeper_are_found_in_the_folder_of_runs(in_process, tiny, tmp_path, monkeypatch, capsys):
    # Hydra's own under another name: what it runs is known only afterwards, as of any other sweeper
    ConfigStore.instance().store(group="hydra/sweeper", name="another", node=BasicSweeperConf, provider="test")
    monkeypatch.chdir(tmp_path)
    own = [f"runs={tmp_path / 'other'}", f"cache={tmp_path / 'cache'}"]
    assert launch(["-m", "hydra/sweeper=another", "heads=2", *own, *tiny]) == 0, capsys.readouterr().out
    assert statuses(tmp_path / "other") == ["done"]
    assert not (tmp_path / "runs").exists()
