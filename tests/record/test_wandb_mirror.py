"""W&B offline: what the .wandb file holds, and what must never happen to a run because of it."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from experiments.record.folder import configuration_digest
from experiments.record.mirrors.wandb_mirror import finish


def read(runs: Path) -> tuple[list[dict], dict, dict]:
    """History, the record of the run, and the summary of the only .wandb file under `runs`, read by W&B itself."""
    import wandb

    files = [file for file in runs.glob("wandb/*/*.wandb") if not file.parent.is_symlink()]
    assert len(files) == 1, files
    core = Path(wandb.__file__).parent / "bin" / "wandb-core"
    inspect = [core, "leet", "inspect", "-json", "-no-observability", "-run-file", files[0]]
    records = [json.loads(line) for line in subprocess.check_output(inspect, text=True).splitlines()]
    summary: dict = {}
    for record in records:
        summary |= record.get("summary", {}).get("update", {})
    history = [record["history"]["item"] for record in records if record["type"] == "history"]
    return history, next(record["run"] for record in records if record["type"] == "run"), summary


def own(row: dict) -> dict:
    """A row of history as it was logged: without W&B's own keys."""
    spelled = {"Infinity": math.inf}
    return {key: spelled.get(value, value) for key, value in row.items() if not key.startswith("_")}


def test_an_offline_run_is_whole_and_silent(train, settings, result):
    done = train("begin(); train(0, 4); end()")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    history, run, summary = read(train.folder.path.parent)
    assert [own(row) for row in history] == train.folder.metrics.read() == train.lines
    assert [row["_step"] for row in history] == [10, 20, 30, 40]
    assert run["run_id"].startswith(f"{train.folder.name}-") and run["display_name"] == train.folder.name
    assert run["run_group"] == "sweep"
    assert run["tags"] == ["nano", "cpu"]
    config = run["config"]["update"]
    assert config["model"] == settings["model"] and config["digest"] == configuration_digest(settings)
    assert config["environment"]["host"] == "here"
    assert not {"runs", "cache", "logger"} & set(config)
    assert summary["validation_loss"] == result.validation_loss
    assert summary["parameters"] == result.parameters and summary["status"] == "done"
    assert summary["tokens_per_second"] == result.tokens_per_second
    assert summary["loss"]["min"] == 1 / 3
    assert "nobody is logged in" in (train.folder.path / "log.txt").read_text()


def test_a_cut_run_is_one_run_with_every_step_once(train):
    train("begin(); train(0, 3); os.kill(os.getpid(), signal.SIGKILL)")
    train("begin(20); train(2, 3)")
    done = train("begin(20); train(2, 4); end()")
    assert (done.stdout, done.stderr) == ("", "")
    history, run, _ = read(train.folder.path.parent)
    assert [own(row) for row in history] == train.folder.metrics.read() == train.lines
    assert run["run_group"] == "sweep"


@pytest.mark.campaign
def test_runs_in_one_process_stay_apart(train):
    script = """
for seed in (0, 1):
    settings["seed"] = seed
    folder = RunFolder(f"{path}-{seed}")
    begin(); train(seed, 4); end()
"""
    assert train(script).stderr == ""
    for seed in (0, 1):
        runs = train.folder.path.parent
        (file,) = runs.glob(f"wandb/offline-*/run-{train.folder.name}-{seed}-*.wandb")
        shutil.copytree(file.parent, runs / str(seed) / "wandb" / "only")
        assert [own(row) for row in read(runs / str(seed))[0]] == train.lines[seed:]


@pytest.mark.campaign
def test_an_offline_run_opens_no_connection(train, tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    train("begin(); train(0, 4); end()", prefix=("strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(trace)))
    assert len(read(train.folder.path.parent)[0]) == 4
    assert "AF_INET" not in trace.read_text()


@pytest.mark.campaign
def test_the_death_of_the_service_is_noted_and_nothing_else(train):
    script = """
import pathlib
begin(); train(0, 2)
services = [pid for file in pathlib.Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
assert services
for pid in services:
    os.kill(int(pid), signal.SIGKILL)
time.sleep(0.3)
train(2, 4); end()
"""
    done = train(script)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert train.folder.metrics.read() == train.lines
    assert train.folder.result().status == "done"
    assert (train.folder.path / "log.txt").read_text().count("W&B failed and is switched off") == 1


@pytest.mark.campaign
def test_an_interrupt_of_the_terminal_spares_the_service(train):
    script = """
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
begin(); train(0, 2); os.killpg(0, signal.SIGINT); time.sleep(0.5); train(2, 4); end(); assert caught
"""
    done = train(f"os.setsid(){script}")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert [own(row) for row in read(train.folder.path.parent)[0]] == train.lines


@pytest.mark.parametrize(
    ("status", "code"),
    [("done", 0), ("imported", 0), ("pruned", 0), ("interrupted", 1), ("oom", 1), (None, 1)],
)
def test_only_a_run_that_no_command_continues_is_finished_in_wandb(result, status, code):
    run = Mock(summary={})
    reason = None if status == "done" else "it is said here"
    finish(run, status and dataclasses.replace(result, status=status, reason=reason))
    run.finish.assert_called_once_with(exit_code=code)


def test_wandb_that_cannot_be_imported_is_noted(train):
    done = train("sys.modules['wandb'] = None\nbegin(); train(0, 4); end()")
    assert (done.stdout, done.stderr) == ("", "")
    assert "W&B failed and is switched off" in (train.folder.path / "log.txt").read_text()
    assert train.folder.metrics.read() == train.lines


@pytest.mark.parametrize(("mode", "variable"), [("off", ""), ("auto", "disabled")])
def test_off_leaves_no_trace(train, settings, mode, variable):
    settings["logger"]["wandb"] = mode
    train("begin(); train(0, 4); end()\nassert 'wandb' not in sys.modules", WANDB_MODE=variable)
    assert train.folder.result().status == "done"
    assert not (train.folder.path.parent / "wandb").exists()


def test_importing_the_mirrors_imports_no_library_of_a_logger_and_no_torch(python):
    code = """if True:
        import sys
        from experiments.record import environment
        from experiments.display import progress as display
        from experiments.record import mirrors
        print({"wandb", "tensorboard", "trackio", "torch", "rich"} & set(sys.modules))
    """
    assert python(code).stdout == "set()\n"
