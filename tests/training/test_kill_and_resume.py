"""Real processes, really killed: SIGKILL at any moment, SIGTERM, SIGINT, and a terminal that is closed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.processes.interruption import Interrupted, Interruption
from experiments.record.folder import RunFolder
from experiments.record.mirrors.mirrors import Mirrors
from experiments.training import train as training
from experiments.training.step.learner import Learner
from tests.fixtures.terminal import Terminal

ROOT = Path(__file__).parents[2]
TRAINEE = """
import sys, torch
torch.set_num_threads(1)
from experiments.measure.cores import Neighbours
from experiments.display.progress import Display
from experiments.record.folder import RunFolder
from experiments.settings.run import Settings
from experiments.processes.interruption import Interrupted
from experiments.training.train import train

settings = Settings.model_validate_json(sys.stdin.read())
with RunFolder(sys.argv[1]) as folder, Display() as display:
    folder.create(settings.model_dump())
    try:
        train(settings, folder, display, Neighbours())
    except Interrupted as interrupted:
        sys.exit(interrupted.exit_code)
"""


def start(settings, folder: Path, **streams) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINEE, str(folder)],
        stdin=subprocess.PIPE,
        cwd=folder.parent,
        env=environment,
        **({"stderr": subprocess.DEVNULL} | streams),
    )
    with process.stdin as stdin:
        stdin.write(settings.model_dump_json().encode())
    return process


def steps_logged(folder: Path) -> int:
    lines = folder / "metrics.jsonl"
    return len(lines.read_bytes().splitlines()) if lines.exists() else 0


def wait_for_step(process, folder: Path, step: int) -> None:
    while process.poll() is None and steps_logged(folder) < step:
        time.sleep(0.001)


@pytest.fixture
def long(settings):
    return settings(max_steps=150, trainer__checkpoint_every=7, trainer__evaluate_every=30)


def test_killed_once_it_ends_with_the_same_bytes(settings, go, outcome, tmp_path, with_kernel):
    short = settings(max_steps=36, trainer__checkpoint_every=5, trainer__evaluate_every=18)
    with_kernel(Path(short.cache))
    check_kills(short, go, outcome, tmp_path, random.Random(0), 1, within=20)


def check_kills(config, go, outcome, tmp_path, chance, kills, within):
    _, whole = go(config, "whole")
    for _ in range(kills):
        # what is there may be ahead of what the start before was asked to reach
        reached = steps_logged(tmp_path / "killed")
        process = start(config, tmp_path / "killed")
        wait_for_step(process, tmp_path / "killed", reached + chance.randrange(1, within))
        time.sleep(chance.random() / 50)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    result, folder = go(config, "killed")
    assert result.steps == config.trainer.max_steps
    assert outcome(folder) == outcome(whole)
    assert len(folder.environment()["earlier"]) == kills


SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)


@pytest.mark.campaign
@SIGNALS
def test_signals_to_a_process_finish_the_step_and_keep_it(long, tmp_path, number, code):
    process = start(long, tmp_path / "run")
    wait_for_step(process, tmp_path / "run", 10)
    process.send_signal(number)
    assert process.wait() == code
    check_interrupted(RunFolder(tmp_path / "run"), number, 150)


@pytest.mark.campaign
def test_a_terminal_that_is_closed_ends_a_training_with_a_checkpoint(long, tmp_path):
    with Terminal() as terminal:
        process = start(long, tmp_path / "run", **terminal.of_child)
        while process.poll() is None and steps_logged(tmp_path / "run") < 10:
            terminal.read()
    assert process.wait() == 129
    check_interrupted(RunFolder(tmp_path / "run"), signal.SIGHUP, 150)


@SIGNALS
def test_signals_finish_the_step_and_keep_it(settings, go, tmp_path, monkeypatch, number, code):
    """The signal comes in the middle of a step."""
    take = Learner.take

    def signalled(learner, step, learning_rate):
        if step == 7:
            signal.raise_signal(number)
        return take(learner, step, learning_rate)

    monkeypatch.setattr(Learner, "take", signalled)
    with pytest.raises(Interrupted) as interrupted:
        go(settings())
    assert interrupted.value.exit_code == code
    assert check_interrupted(RunFolder(tmp_path / "run"), number, 20) == 7


def test_sigterm_that_comes_again_breaks_nothing_off(settings, go, tmp_path, monkeypatch):
    """It comes in the middle of a step, while the checkpoint is written, and while the result is."""

    sent: list[str] = []

    def signalled(name):
        call = getattr(training, name)

        def signal_and_call(*arguments):
            if sent or arguments[1:] == (7,):
                sent.append(name)
                signal.raise_signal(signal.SIGTERM)
            return call(*arguments)

        monkeypatch.setattr(training, name, signal_and_call)

    for name in ("take_step", "write_checkpoint", "conclude"):
        signalled(name)
    with pytest.raises(Interrupted):
        go(settings())
    assert check_interrupted(RunFolder(tmp_path / "run"), signal.SIGTERM, 20) == 7
    assert sent == ["take_step", "write_checkpoint", "conclude"]


def test_a_signal_after_a_step_whose_checkpoint_is_not_due_waits_for_the_next_checkpoint(
    settings, go, tmp_path, monkeypatch
):
    """It comes when the run has just looked for one."""
    step, take_step = [0], training.take_step

    def noted(run, number):
        step[0] = number
        return take_step(run, number)

    def pending(interruption):
        found = interruption._pending is not None
        if step[0] == 7:
            signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(training, "take_step", noted)
    monkeypatch.setattr(Interruption, "pending", property(pending))
    with pytest.raises(Interrupted):
        go(settings())
    assert check_interrupted(RunFolder(tmp_path / "run"), signal.SIGTERM, 20) == 8


def test_a_signal_or_a_kill_in_the_step_in_which_a_search_prunes_a_run_does_not_undo_it(settings, go):
    def pruner(step, loss):
        signal.raise_signal(signal.SIGTERM)
        return "hopeless"

    result, folder = go(settings(), pruner=pruner)
    assert (result.status, result.reason, result.steps) == ("pruned", "hopeless", 10)
    # a kill leaves the checkpoint alone
    (folder.path / "result.json").unlink()
    again, _ = go(settings(), pruner=lambda step, loss: f"hopeless at {step}")
    assert (again.status, again.reason, again.validation_loss) == ("pruned", "hopeless at 10", result.validation_loss)


@pytest.mark.parametrize(("owner", "name"), [(RunFolder, "write_result"), (Mirrors, "finish")])
def test_ctrl_c_after_the_result_is_written_leaves_it_as_it_is(settings, go, tmp_path, monkeypatch, owner, name):
    call = getattr(owner, name)

    def signalled(*arguments):
        call(*arguments)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(owner, name, signalled)
    with pytest.raises(Interrupted):
        go(settings(max_steps=2, trainer__max_steps=2))
    assert RunFolder(tmp_path / "run").result().status == "done"


def check_interrupted(folder: RunFolder, number: signal.Signals, steps: int) -> int:
    """Check that the next step of a run is the one after the last logged step, so that none was lost."""
    result = folder.result()
    assert result.status == "interrupted" and number.name in result.reason
    assert result.steps == folder.metrics.read()[-1]["step"] < steps
    assert (folder.checkpoint / f"step-{result.steps:09d}.safetensors").exists()
    assert json.loads((folder.path / "result.json").read_text())["wall_seconds"] > 0
    return result.steps
