"""TensorBoard: what the event file holds, read by TensorBoard itself, beside metrics.jsonl."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.failures.missing_extra import install_line


def read(place: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """Steps and values of each scalar, and the texts, of the only event file in `place`."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (file,) = place.iterdir()
    events = accumulators.EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    scalars = {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    texts = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}
    return scalars, {tag.removesuffix("/text_summary"): text for tag, text in texts.items()}


def curves(lines: list[dict]) -> dict[str, list[tuple[int, float]]]:
    """The same of the lines of metrics.jsonl, in the float32 of an event file."""
    keys = {key for line in lines for key in line} - {"step"}
    return {key: [(line["step"], float(np.float32(line[key]))) for line in lines if key in line] for key in keys}


@pytest.fixture
def logged(train, settings):
    """`train` with TensorBoard alone, and the folder of its event files."""
    pytest.importorskip("tensorboard")
    settings["logger"] |= {"wandb": "off", "tensorboard": True}
    return train, train.folder.path.parent / "tensorboard" / train.folder.name


def test_a_cut_run_is_one_run_with_every_step_once_and_its_result(logged, settings, result):
    train, place = logged
    # a step that the checkpoint did not have, and that is taken again
    train("begin(); train(0, 3); os.kill(os.getpid(), signal.SIGKILL)")
    done = train("begin(20); train(2, 4); end()")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    scalars, texts = read(place)
    assert {tag: curve for tag, curve in scalars.items() if not tag.startswith("result/")} == curves(train.lines)
    assert train.folder.metrics.read() == train.lines
    assert scalars["result/validation_loss"] == [(result.steps, result.validation_loss)]
    assert json.loads(texts["settings"])["heads"] == settings["heads"]
    assert json.loads(texts["result"])["status"] == "done"


@pytest.mark.campaign
def test_a_failure_of_one_logger_is_noted_once_and_ends_neither_the_run_nor_another(logged, settings):
    train, place = logged
    settings["logger"]["wandb"] = "offline"
    done = train("sys.modules['wandb'] = None\nbegin(); train(0, 4); end()")
    assert (done.stdout, done.stderr) == ("", "")
    assert {tag for tag in read(place)[0] if not tag.startswith("result/")} == set(curves(train.lines))
    assert (train.folder.path / "log.txt").read_text().count("W&B failed and is switched off") == 1


def test_a_failure_in_the_middle_spares_the_run(logged):
    train, _ = logged
    done = train("""
from torch.utils.tensorboard import SummaryWriter
def fail(*_): raise OSError("the disk is gone")
begin(); train(0, 2); SummaryWriter.add_scalar = fail; train(2, 4); end()
""")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert train.folder.metrics.read() == train.lines
    log = (train.folder.path / "log.txt").read_text()
    assert log.count("TensorBoard failed and is switched off; the run is not affected: OSError: the disk") == 1


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_missing_library_is_said_before_anything_is_made(attn, tiny, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("experiments.failures.missing_extra.find_spec", lambda library: None)
    before = sorted(tmp_path.rglob("*"))
    for more in ((), ("-m", "seed=0,1")):
        done = attn("train", "heads=2", f"logger.{name}=true", *tiny, *more)
        assert done.returncode == 2
        assert f"logger.{name}=true needs {name}" in done.stderr and install_line(name) in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_trained_run_is_mirrored_as_its_metrics_say(attn, tiny, tmp_path):
    pytest.importorskip("tensorboard")
    done = attn("train", "heads=2", "logger.tensorboard=true", *tiny)
    assert done.returncode == 0, done.stderr
    (metrics,) = tmp_path.glob("runs/*/metrics.jsonl")
    scalars, _ = read(tmp_path / "runs" / "tensorboard" / metrics.parent.name)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert {tag: curve for tag, curve in scalars.items() if not tag.startswith("result/")} == curves(lines)
