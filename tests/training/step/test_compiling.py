"""torch.compile of layers: when it is used, that it changes numbers only by rounding, and that runs can continue."""

from __future__ import annotations

import itertools
import math
import re
import signal
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from experiments.failures.failure import Mistake
from experiments.record.folder import RunFolder
from experiments.training import set_up as set_up_module
from experiments.training.step import compiling
from experiments.training.step import learner as learner_module
from experiments.training.step.compiling import Decision, choose, weigh
from experiments.training.step.learner import Learner
from experiments.training.step.micro_batches import Forward, backward
from tests.training.conftest import train_in
from tests.training.test_kill_and_resume import start, wait_for_step


def test_it_pays_where_the_steps_save_more_than_the_compiler_took():
    # a fifth of 1,000 seconds is saved
    pairs = [(0.100, 0.080), (0.110, 0.088), (0.500, 0.100)]
    assert weigh(pairs, 199.0, 1000.0).compiled
    refused = weigh(pairs, 201.0, 1000.0)
    assert not refused.compiled
    assert refused.why == (
        "torch.compile is not used: a gradient takes 88.0 ms with it and 110.0 ms without, and the compiler took 201 s"
    )
    # the median of the pairs' ratios, not the ratio of the medians, and never where it is slower
    assert not weigh([(0.1, 0.11), (0.1, 0.12), (0.9, 0.1)], 0.0, 1e9).compiled


AUTO = {"trainer__compile": "auto", "model__attention_dropout": 0.0, "variant__dropout": 0.0}


@pytest.fixture(scope="module")
def uncompiled(settings, tmp_path_factory):
    """The folder of a run of these settings that nothing tried to compile."""
    return train_in(tmp_path_factory.mktemp("plain") / "run", settings(**AUTO | {"trainer__compile": False}))[1]


@pytest.fixture
def worth_it(monkeypatch):
    """Any run is long enough for a trial."""
    monkeypatch.setattr(compiling, "LONG", 0.0)
    monkeypatch.setattr(compiling, "FEWEST", 1)


@pytest.mark.parametrize(
    ("steps", "limit", "once", "said"),
    [
        (1000, math.inf, 1.8, "tried"),
        (1000, math.inf, 1.7, ""),
        (999, math.inf, 100.0, ""),
        (None, 1799.0, 0.1, ""),
        (None, 3600.0, 3.6, "tried"),
        (None, 3600.0, 3.7, ""),
        (10**6, 1799.0, 1.0, ""),
    ],
)
def test_only_a_run_of_half_an_hour_and_a_thousand_gradients_is_tried(monkeypatch, steps, limit, once, said):
    monkeypatch.setattr(compiling, "backward", lambda *_: None)
    monkeypatch.setattr(compiling, "seconds", lambda *_: once)
    monkeypatch.setattr(compiling, "_tried", lambda *_: Decision(False, "tried"))
    model = nn.Linear(1, 1)
    forward = Forward(model, torch.device("cpu"), "fp32", 0)
    assert choose(model, forward, [None], 1, steps=steps, limit=limit) == Decision(False, said)


def test_a_short_run_and_one_that_changes_from_step_to_step_try_nothing(settings, go, monkeypatch):
    result, folder = go(settings(**AUTO | {"max_steps": 2}), "short")
    assert result.compiled is False and folder.environment()["torch"]["compiled"] is False
    monkeypatch.setattr(compiling, "LONG", 0.0)
    monkeypatch.setattr(compiling, "FEWEST", 1)
    monkeypatch.delattr(set_up_module, "choose")
    changing = (
        {"variant__dropout": 0.1},
        {"model__norm_kind": "batch"},
        {"layers": 1},
        # the last layer of a stack is not compiled
        {"layers": 1, "trainer__compile": True},
    )
    for number, changes in enumerate(changing):
        result, folder = go(settings(**AUTO | changes | {"max_steps": 2, "schedule__warmup_steps": 0}), f"{number}")
        log = folder.path / "log.txt"
        assert result.compiled is False and (not log.exists() or "compile" not in log.read_text())


def test_a_run_whose_passes_are_replayed_tries_nothing(settings, go, monkeypatch):
    """A trial would compare with passes that are not replayed."""
    monkeypatch.setattr(compiling, "LONG", 0.0)
    monkeypatch.setattr(compiling, "FEWEST", 1)
    monkeypatch.delattr(set_up_module, "choose")
    graphs = SimpleNamespace(backward=lambda forward, batch, index, size, say: backward(forward, batch, index, size))
    monkeypatch.setattr(learner_module, "graphs_of", lambda *_: graphs)
    result, _ = go(settings(**AUTO | {"max_steps": 2, "schedule__warmup_steps": 0}))
    assert result.compiled is False


@pytest.mark.parametrize("variable", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_where_the_environment_turns_the_compiler_off_no_run_says_that_it_is_compiled(
    settings, go, monkeypatch, variable
):
    compiled = settings(**AUTO | {"trainer__compile": True, "max_steps": 2, "schedule__warmup_steps": 0})
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(set_up_module, "compile_layers", lambda *_, **__: None)
    with pytest.raises(Mistake, match=rf"trainer\.compile=true: {variable}=1 turns torch\.compile off"):
        go(compiled, "new")
    # nor does one go on without it
    monkeypatch.delenv(variable)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Learner, "take", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        go(compiled, "begun")
    monkeypatch.setenv(variable, "1")
    with pytest.raises(Mistake, match=f"begun was begun with layers that torch.compile compiled: {variable}=1"):
        go(compiled, "begun")


@pytest.mark.usefixtures("worth_it")
def test_what_fails_is_not_used_and_leaves_no_trace(settings, go, uncompiled, outcome, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *_, **__: lambda *_, **__: 1 / 0)
    _, folder = go(settings(**AUTO), "auto")
    assert "torch.compile is not used, because it failed: division by zero" in (folder.path / "log.txt").read_text()
    assert outcome(folder) == outcome(uncompiled)


@pytest.mark.usefixtures("worth_it")
def test_what_comes_to_another_gradient_is_not_used_and_leaves_no_trace(settings, go, uncompiled, outcome, monkeypatch):
    signs = itertools.cycle([1, -1])
    monkeypatch.setattr(torch, "compile", lambda call, **_: lambda *x, **context: next(signs) * call(*x, **context))
    monkeypatch.delattr(compiling, "weigh")
    _, folder = go(settings(**AUTO), "auto")
    assert "torch.compile is not used, because it changes a gradient by " in (folder.path / "log.txt").read_text()
    assert outcome(folder) == outcome(uncompiled)


@pytest.mark.usefixtures("worth_it")
def test_what_a_trial_chose_is_kept_when_the_run_goes_on(settings, go, monkeypatch):
    made = []
    monkeypatch.setattr(torch, "compile", lambda call, **_: made.append(call) or call)
    monkeypatch.setattr(compiling, "weigh", lambda *_: Decision(True, "torch.compile is used: so it is"))

    batch = Learner.batch

    def cut(learner, index):
        if index == 6:
            raise KeyboardInterrupt
        return batch(learner, index)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Learner, "batch", cut)
        go(settings(**AUTO))
    monkeypatch.delattr(set_up_module, "choose")
    result, folder = go(settings(**AUTO))
    assert result.compiled and folder.environment()["torch"]["compiled"]
    assert (folder.path / "log.txt").read_text().count("so it is") == 1
    # the last layer goes on with the predicted positions only
    assert len(made) == 2 * (settings().layers - 1)
    assert result.wall_seconds > 0


@pytest.mark.campaign
def test_compiled_layers_differ_by_rounding_and_a_killed_run_goes_on_byte_by_byte(settings, go, outcome, tmp_path):
    # dropout of the stream, not of the attention: its seed would be in the code
    steps = AUTO | {"max_steps": 60, "trainer__max_steps": 60}
    _, plain = go(settings(**steps | {"trainer__compile": False}), "plain")
    config = settings(**steps | {"trainer__compile": True})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(config, whole).wait() == 0
    process = start(config, killed)
    wait_for_step(process, killed, 8)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert start(config, killed).wait() == 0
    lines = outcome(RunFolder(whole))[0]
    assert outcome(RunFolder(killed)) == outcome(RunFolder(whole))
    assert RunFolder(whole).result().compiled
    # dropout is the same, or losses would differ by much more
    expected = [line["loss"] for line in outcome(plain)[0]]
    found = [line["loss"] for line in lines]
    assert found != expected and found == pytest.approx(expected, rel=1e-3)


@pytest.mark.campaign
def test_where_a_compiled_model_went_wrong_is_still_found(settings, go, monkeypatch):
    batch = Learner.batch

    def poisoned(learner, index):
        if index == 2:
            with torch.no_grad():
                learner.model.layers[0].feed_forward.inner.weight[0, 0] = float("nan")
        return batch(learner, index)

    monkeypatch.setattr(Learner, "batch", poisoned)
    result, _ = go(settings(trainer__compile=True))
    assert result.status == "nan" and "layers.0.feed_forward.inner" in result.reason


@pytest.mark.campaign
@pytest.mark.usefixtures("worth_it")
def test_a_trial_says_what_it_measured(settings, go):
    result, folder = go(settings(**AUTO))
    used = r"torch.compile is (not )?used: a gradient takes [\d.]+ ms with it and [\d.]+ ms without, .* took \d+ s"
    (said,) = re.findall(used, (folder.path / "log.txt").read_text())
    assert result.compiled == (said == "")
