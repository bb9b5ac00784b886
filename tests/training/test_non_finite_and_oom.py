"""Steps that are not finite, in each mode of the guard; memory that runs out; interruptions at steps of such runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from experiments.record.errors import RunFolderError
from experiments.training import train as train_module
from experiments.training.step.learner import Learner
from tests.fixtures.outcome import tensors_of


class PowerCut(BaseException):
    pass


@pytest.fixture
def disturb(monkeypatch):
    """disturb(at_step, change): calls at_step(step), and change(step, output) may change the output of a module."""

    def arrange(at_step, change=None):
        step_now = [0]
        batch_of, set_up = Learner.batch, train_module.set_up

        def disturbed(learner, index):
            step_now[0] = index + 1
            at_step(index + 1)
            return batch_of(learner, index)

        def prepared(*arguments):
            run = set_up(*arguments)
            if change is not None:
                module = run.model.get_submodule("encoder.layers.0.feed_forward")
                module.register_forward_hook(
                    lambda module, inputs, output: change(step_now[0], output) if module.training else output
                )
            return run

        monkeypatch.setattr(Learner, "batch", disturbed)
        monkeypatch.setattr(train_module, "set_up", prepared)

    return arrange


def nan_at(*steps):
    return lambda step, output: output * float("nan") if step in steps else output


def nothing(step):
    pass


def test_stop_names_step_batch_and_module_and_changes_no_weight(settings, go, disturb):
    disturb(nothing, nan_at(8))
    result, folder = go(settings(trainer__checkpoint_every=1))
    assert result.status == "nan" and folder.result() == result
    assert result.steps == 7 and result.validation_loss is None
    assert result.reason.startswith("step 8 (batch ") and "of 8 sequences): loss nan" in result.reason
    assert "first module to return something not finite is encoder.layers.0.feed_forward" in result.reason
    assert [line["step"] for line in folder.metrics.read()] == list(range(1, 8))
    assert all(tensor.isfinite().all() for tensor in tensors_of(folder).values())


def test_a_poisoned_weight_is_named(settings, go, monkeypatch):
    set_up = train_module.set_up

    def poisoned(*arguments):
        run = set_up(*arguments)
        with torch.no_grad():
            run.model.get_parameter("encoder.layers.0.attention.value.weight")[0, 0] = float("inf")
        return run

    monkeypatch.setattr(train_module, "set_up", poisoned)
    result, _ = go(settings(trainer__guard="skip", trainer__guard_limit=3))
    assert result.status == "nan" and result.skipped_steps == 3
    assert "encoder.layers.0.attention.value.weight is not finite itself" in result.reason
    assert "trainer.guard_limit=3 is reached" in result.reason


def test_a_gradient_that_is_not_finite_is_caught(settings, go, disturb):
    def steep(step, output):
        # its value is 0, its slope at 0 infinite
        return output + (output * 0).abs().sqrt() if step == 3 else output

    disturb(nothing, steep)
    result, _ = go(settings())
    assert result.status == "nan" and result.reason.startswith("step 3 ")
    assert "the first parameter whose gradient is not is embedding." in result.reason


def test_skip_and_reload_end_alike_when_nothing_else_is_random(settings, go, disturb, outcome, monkeypatch):
    class Recorder:
        name = "a recorder"

        def __init__(self, folder, settings):
            mirrored[:] = folder.metrics.read()

        def log(self, step, metrics):
            mirrored.append(metrics)

        def finish(self, result):
            pass

        def give_up(self):
            pass

    mirrored = []
    monkeypatch.setattr("experiments.record.mirrors.mirrors._named", lambda logger: [Recorder])
    disturb(nothing, nan_at(8, 13))
    ends = []
    for guard in ("skip", "reload"):
        result, folder = go(settings(trainer__guard=guard), guard)
        assert result.status == "done" and result.skipped_steps == 2
        assert result.tokens == 18 * 8 * 16
        # log_every=1: the skipped steps have no line
        assert [line["step"] for line in folder.metrics.read()] == [s for s in range(1, 21) if s not in (8, 13)]
        # nor has a mirror the steps twice that were repeated
        assert mirrored == folder.metrics.read()
        ends.append(outcome(folder))
    assert ends[0] == ends[1]


def test_the_guard_is_bounded(settings, go, disturb):
    disturb(nothing, nan_at(3, 4, 5))
    for guard in ("skip", "reload"):
        result, _ = go(settings(trainer__guard=guard, trainer__guard_limit=2), guard)
        assert result.status == "nan" and result.reason.startswith("step 5 ")
        assert "trainer.guard_limit=2 is reached" in result.reason


def test_two_hosts_whose_locks_do_not_reach_each_other_damage_no_run(settings, go, disturb, monkeypatch, outcome):
    config = settings(trainer__log_every=2, trainer__checkpoint_every=5)
    _, whole = go(config, "whole")
    monkeypatch.setattr("experiments.record.lock.take_lock", lambda descriptor, **options: True)
    others = []

    def at_step(step):
        if step == 13 and not others:
            others.append("elsewhere")
            monkeypatch.setattr("platform.node", lambda: "elsewhere")
            others.append(go(config, "shared"))

    disturb(at_step)
    with pytest.raises(RunFolderError, match=r"on elsewhere .* trains in it too"):
        go(config, "shared")
    _, folder = others[1]
    folder.check_files()
    assert folder.result().status == "done" and outcome(folder) == outcome(whole)


@pytest.mark.parametrize(
    ("guard", "firsts"),
    [
        ("skip", [1]),
        ("reload", [3]),
        pytest.param("skip", [1, 2, 3, 4], marks=pytest.mark.campaign),
        pytest.param("reload", [1, 2, 3, 4], marks=pytest.mark.campaign),
    ],
)
def test_a_cut_at_any_step_changes_nothing_not_even_what_is_skipped(settings, go, disturb, guard, firsts, outcome):
    config = settings(trainer__guard=guard, trainer__log_every=2, max_steps=15, trainer__max_steps=15)
    cuts = iter([])
    cut = [None]

    def at_step(step):
        if step == cut[0]:
            cut[0] = next(cuts, None)
            raise PowerCut

    disturb(at_step, nan_at(8, 13))
    _, whole = go(config, "whole")
    for first in firsts:
        cuts = iter(range(first + 4, 16, 4))
        cut[0] = first
        for _ in range(10):
            try:
                _, folder = go(config, f"cut{first}")
                break
            except PowerCut:
                pass
        assert outcome(folder) == outcome(whole)


@pytest.fixture
def unfit(monkeypatch):
    """unfit(*evaluations): these evaluations of a run, counted from 1, have a loss that is not finite."""

    def arrange(*evaluations):
        evaluate, count = train_module.evaluate, iter(range(1, 100))

        def evaluated(*arguments, **options):
            evaluation = evaluate(*arguments, **options)
            return replace(evaluation, loss=float("nan")) if next(count) in evaluations else evaluation

        monkeypatch.setattr(train_module, "evaluate", evaluated)

    return arrange


def test_a_validation_loss_that_is_not_finite_stops_a_run_or_is_passed_over_and_recorded(settings, go, unfit):
    every_four = {"trainer__evaluate_every": 4, "trainer__log_every": 20}
    unfit(1)
    stopped, _ = go(settings(**every_four), "stop")
    assert stopped.status == "nan" and stopped.reason == "step 4: the validation loss is nan"
    unfit(2)
    result, folder = go(settings(trainer__guard="skip", **every_four), "skip")
    assert result.status == "done" and result.skipped_steps == 0
    losses = [line["validation_loss"] for line in folder.metrics.read()]
    assert [step for step, loss in enumerate(losses, start=1) if loss != loss] == [2] and len(losses) == 5
    assert "step 8: the validation loss is nan; skipped" in (folder.path / "log.txt").read_text()
    for guard_limit, last in ((1, "step 8"), (5, "step 20")):
        unfit(*range(100))
        result, _ = go(settings(trainer__guard="skip", trainer__guard_limit=guard_limit, **every_four), last)
        assert result.status == "nan" and result.validation_loss is None and result.reason.startswith(last)
        assert ("guard_limit" in result.reason) == (last == "step 8")


def test_a_validation_loss_that_is_not_finite_takes_a_run_back(settings, go, unfit):
    every_four = {"trainer__evaluate_every": 4, "trainer__checkpoint_every": 2, "trainer__guard": "reload"}
    unfit(2, 3)
    result, folder = go(settings(**every_four))
    log = (folder.path / "log.txt").read_text()
    assert result.status == "done" and result.skipped_steps == 2
    assert "back to step 6, to continue without step 8" in log and "back to step 6, to continue without step 7" in log
    assert [line["step"] for line in folder.metrics.read() if "validation_loss" in line] == [4, 8, 12, 16, 20]
    unfit(2, 3, 4)
    result, _ = go(settings(trainer__guard_limit=9, **every_four), "nothing left")
    assert result.status == "nan" and result.reason == "step 8: the validation loss is nan"
    unfit(*range(100))
    result, _ = go(settings(**every_four | {"trainer__checkpoint_every": 20}), "bounded")
    assert result.status == "nan" and "trainer.guard_limit=2 is reached" in result.reason


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_batch(settings, go, disturb, plain_run):
    def limited(step, output):
        if len(output) > 3 and step >= 5:
            torch.empty(1 << 50)
        return output

    disturb(nothing, limited)
    _, plain = plain_run
    result, folder = go(settings())
    assert result.status == "done" and result.micro_batch == 2
    assert result.tokens == 20 * 8 * 16
    one, other = plain.metrics.read(), folder.metrics.read()
    assert [line["loss"] for line in one[:4]] == [line["loss"] for line in other[:4]]
    assert "going on with 4 sequences at once" in (folder.path / "log.txt").read_text()


def test_an_evaluation_that_does_not_fit_is_split_from_then_on_also_after_a_cut_while_training_is_not(
    settings, ends_alike_when_cut, monkeypatch
):
    evaluate, sizes = train_module.evaluate, []

    def limited(*arguments, micro_batch, **options):
        sizes.append(micro_batch)
        if micro_batch > 2:
            raise MemoryError
        return evaluate(*arguments, micro_batch=micro_batch, **options)

    monkeypatch.setattr(train_module, "evaluate", limited)
    result, folder = ends_alike_when_cut(settings(trainer__evaluate_every=5, max_steps=10, trainer__max_steps=10), 8)
    assert sizes == 2 * [8, 4, 2, 2] and result.micro_batch == 8
    said = [line[20:] for line in (folder.path / "log.txt").read_text().splitlines() if "memory" in line]
    assert said == [
        f"out of memory in the evaluation at step 5: {size} sequences are evaluated at once" for size in (4, 2)
    ]


def test_out_of_memory_with_one_sequence_ends_the_run(settings, go, disturb):
    def full(step, output):
        if step == 6:
            raise MemoryError
        return output

    disturb(nothing, full)
    result, folder = go(settings())
    assert result.status == "oom" and result.steps == 5 and result.micro_batch == 8
    assert "even a single sequence does not fit in memory" in result.reason
    assert folder.result() == result


def test_another_error_is_recorded_and_goes_on_its_way(settings, go, disturb, tmp_path):
    def broken(step, output):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    disturb(nothing, broken)
    with pytest.raises(RuntimeError, match="mat1"):
        go(settings())
    assert '"failed"' in (tmp_path / "run" / "result.json").read_text()
