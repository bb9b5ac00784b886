"""docs/library.md: its examples run as they stand there, in a folder that is not the project's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import experiments
from attention import build, mechanisms
from experiments.failures.failure import Mistake
from experiments.tasks.choose import task_of
from experiments.training.evaluate import evaluate
from experiments.training.step.micro_batches import Forward

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/library.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def printed(elsewhere, text_file, with_kernel) -> str:
    """What the examples print, one after the other, as a program of its own."""
    (elsewhere / "book.txt").write_bytes(text_file.read_bytes())
    (elsewhere / "example.py").write_text("\n".join(EXAMPLES))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    own = {"PYTHONPATH": str(ROOT), "ATTN_CACHE": str(with_kernel(elsewhere / "cache")), "WANDB_MODE": "disabled"}
    command = [sys.executable, "example.py"]
    done = subprocess.run(command, cwd=elsewhere, env=inherited | own, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_run_outside_the_repository(printed, elsewhere):
    assert len(EXAMPLES) == 3
    assert printed.count("torch.Size([2, 10, 512])") == 3 and "'talking_heads'" in printed
    assert len(re.findall(r"^done [\d.]+ \d+$", printed, re.MULTILINE)) == 2
    assert re.search(r"6 torch.Size\(\[1, \d+, 300\]\)", printed)
    assert len(list((elsewhere / "runs").glob("*/result.json"))) == 2
    # the run, and its validation losses
    assert len(re.findall(r"^(?:multi_head|talking_heads)-\S+ \[\d\.\d+", printed, re.MULTILINE)) == 2


def test_runs_are_rows_and_a_model_computes_what_was_evaluated(printed, elsewhere, monkeypatch):
    monkeypatch.chdir(elsewhere)
    rows = experiments.runs()
    assert sorted(rows["variant"]) == ["multi_head", "talking_heads"]
    assert len(experiments.runs(variant=["multi_head", "talking_heads"], heads=6)) == 2
    assert len(experiments.runs(heads=range(4, 9), variant={"multi_head"})) == 1
    monkeypatch.setattr("experiments.commands.library.find_spec", lambda name: None)
    (row,) = experiments.runs(variant="multi_head")
    assert row["steps"] == 20 and row["run"].startswith("multi_head-")
    with pytest.raises(Mistake, match="there is no run 'sigmoid'"):
        experiments.load("sigmoid")
    with pytest.raises(Mistake, match="there is no folder 'run'"):
        experiments.runs("run")
    model, _, settings = experiments.load("multi_head", checkpoint="newest")
    task = task_of(settings)
    dataset = task.prepare(lambda *stage: None)
    score = evaluate(
        model, Forward(model, torch.device("cpu"), "fp32", 0), dataset.validation, dataset.unigram,
        task.objective(dataset.tokenizer), sequences=settings.trainer.evaluation_sequences, micro_batch=8,
    )  # fmt: skip
    # the run may have computed in bf16
    assert score.loss == pytest.approx(row["loss"], rel=1e-2)


@pytest.mark.parametrize("name", mechanisms())
def test_a_layer_of_every_mechanism_is_built_from_two_numbers(name):
    layer = build(name, 24, 4)
    assert layer(torch.randn(2, 5, 24)).shape == (2, 5, 24)


def test_one_override_is_a_list_too():
    with pytest.raises(Mistake, match=r"must be a list of them\n  experiments\.train\(\['variant=gated'\]\)"):
        experiments.train("variant=gated")


def test_an_override_that_nothing_reads_is_refused():
    with pytest.raises(Mistake, match=r"model\.sinusoidal_base=9: nothing reads it with model\.position=rotary"):
        experiments.train(["model.sinusoidal_base=9"])
    with pytest.raises(Mistake, match="seed=0,1: one value is needed here"):
        experiments.train(["seed=0,1"])


def test_what_can_not_be_built_is_named():
    with pytest.raises(ValueError, match="name: is 'talkin', must be one of additive, "):
        build("talkin", 24, 4)
    with pytest.raises(ValueError, match="heads: is 5, must divide hidden_size = 24, or give key_size and value_size"):
        build("multi_head", 24, 5)
