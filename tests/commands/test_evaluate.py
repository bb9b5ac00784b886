"""`attn evaluate` computes as the run did: its precision on any machine, and in parts that fit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cli import app
from experiments.commands.evaluate import evaluate_run
from experiments.config.compose import compose
from experiments.launch.cell import execute
from experiments.settings.mistake import Mistake
from experiments.training.micro_batches import Forward


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory) -> Path:
    """A folder with one run, trained where bfloat16 is fast."""
    folder = tmp_path_factory.mktemp("evaluate")
    own = [f"runs={folder / 'runs'}", f"cache={folder / 'cache'}", "precision=auto"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("experiments.measure.hardware.fast_bf16", lambda device: True)
        assert execute(compose(["heads=2", *tiny, *own])) == 0
    assert result(folder / "runs")["precision"] == "bf16"
    return folder / "runs"


def result(runs: Path) -> dict:
    (path,) = runs.glob("*/result.json")
    return json.loads(path.read_text())


@pytest.fixture
def score(runs, monkeypatch, capsys):
    """The loss of the training, and that of `attn evaluate` on a machine where bfloat16 isn't fast."""
    monkeypatch.setattr("experiments.measure.hardware.fast_bf16", lambda device: False)

    def scored(*words: str) -> tuple[float, str]:
        capsys.readouterr()
        evaluate_run("multi_head", list(words), runs, "newest", "json")
        said = capsys.readouterr()
        return json.loads(said.out)[0]["loss"], said.err

    return result(runs)["validation_loss"], scored


def test_the_precision_is_that_of_the_training_unless_another_is_asked_for(score):
    trained, scored = score
    assert scored()[0] == trained
    assert scored("precision=fp32")[0] != trained


@pytest.mark.parametrize(
    ("word", "said"),
    [("heads=1", "variant.heads = 1"), ("norm=post", "model.norm = 'post'")],
)
def test_another_model_of_the_same_shapes_is_refused(score, word, said):
    with pytest.raises(Mistake, match=f"{re.escape(said)}.* was trained with"):
        score[1](word)


def test_a_batch_that_does_not_fit_is_halved(score, monkeypatch):
    trained, scored = score
    predict, sizes = Forward.predict, []

    def small(self, part):
        sizes.append(len(part.tokens))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("out of memory")
        return predict(self, part)

    monkeypatch.setattr(Forward, "predict", small)
    loss, said = scored("batch_size=8")
    assert loss == pytest.approx(trained, abs=1e-3)
    assert sizes[:3] == [8, 4, 2] and set(sizes[2:]) == {2}
    assert "out of memory: 2 sequences at once" in said


def test_one_sequence_that_does_not_fit_is_said_in_a_line(runs, monkeypatch):
    def none(self, part):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Forward, "predict", none)
    done = CliRunner().invoke(app, ["evaluate", "multi_head", "--runs", str(runs)])
    assert done.exit_code == 5
    assert "attn evaluate: one sequence at a time doesn't fit in memory: out of memory" in done.output
