from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from experiments.cells.cell import check_unchanged
from experiments.config.compose import compose
from experiments.data.cache import Cache
from experiments.data.errors import DataError
from experiments.display.progress import Display
from experiments.failures.failure import Mistake
from experiments.measure.cores import Neighbours
from experiments.measure.memory import resident_bytes
from experiments.record.code import digests
from experiments.record.mirrors.mirrors import Mirrors
from experiments.tasks.pretraining import Pretraining
from experiments.training import set_up
from experiments.training import train as train_module
from experiments.training.step.learner import Learner
from experiments.training.step.micro_batches import OutOfMemoryError
from experiments.training.summary import late_gain
from experiments.training.train import train

ROOT = Path(__file__).resolve().parents[2]


def test_it_learns_and_says_what_it_found(settings, go):
    result, folder = go(settings(max_steps=60, trainer__max_steps=60))
    lines = folder.metrics.read()
    assert lines[-1]["loss"] < lines[0]["loss"] - 1.5
    assert result.status == "done" and folder.result() == result
    assert result.validation_loss < result.unigram_loss
    assert result.perplexity == pytest.approx(math.exp(result.validation_loss))
    assert result.validation_loss == lines[-1]["validation_loss"]
    assert result.steps == 60 and result.tokens == 60 * 8 * 16 == lines[-1]["tokens"]
    rows = Pretraining(settings()).prepare(lambda *_: None).train.tokens
    assert result.epochs == pytest.approx(60 * 8 / len(rows))
    assert result.tokens_per_second > 0 and "median" in result.throughput_meaning
    assert result.peak_memory_bytes > 1e8 and "resident" in result.peak_memory_meaning
    stored = load_file(next(folder.checkpoint.glob("best-*.safetensors")))
    assert result.parameters["total"] == sum(tensor.numel() for tensor in stored.values())
    assert result.backend and result.precision == "fp32" and result.micro_batch == 8
    # the checkpoint of the lowest loss is the one that was kept as the best
    best = min((line for line in lines if "validation_loss" in line), key=lambda line: line["validation_loss"])
    assert [path.stem for path in folder.checkpoint.glob("best-*.safetensors")] == [f"best-{best['step']:09d}"]
    assert result.best_validation_loss == best["validation_loss"]


def test_every_logged_number(settings, go):
    _, folder = go(settings(trainer__log_every=4, trainer__evaluate_every=10))
    lines = folder.metrics.read()
    assert [line["step"] for line in lines] == [4, 8, 10, 12, 16, 20]
    assert lines[0].keys() == {
        "step", "tokens", "loss", "perplexity", "bits_per_byte", "learning_rate", "gradient_norm",
        "tokens_per_second", "peak_memory_bytes", "wall_seconds",
    }  # fmt: skip
    assert lines[2].keys() == {
        "step", "tokens", "wall_seconds", "validation_loss", "validation_perplexity", "validation_bits_per_byte",
        "validation_unigram_loss",
        "validation_unknown_share",
    }  # fmt: skip
    assert lines[0]["learning_rate"] == 1e-2 and lines[0]["perplexity"] == math.exp(lines[0]["loss"])


def test_the_logged_loss_is_the_mean_since_the_last_line(settings, go, plain_run, outcome):
    _, every = plain_run
    _, fourth = go(settings(trainer__log_every=4), "fourth")
    # 19 of 128 tokens are predicted in each batch, give or take its [CLS] and [SEP]
    losses = [line["loss"] for line in every.metrics.read()]
    means = [line["loss"] for line in fourth.metrics.read() if "loss" in line]
    assert means == pytest.approx([np.mean(losses[i : i + 4]) for i in range(0, 20, 4)], rel=1e-2)
    assert outcome(every)[1] == outcome(fourth)[1]


def test_runs_that_differ_in_the_model_only_see_the_same_batches_and_masks(settings, go, monkeypatch):
    taken = []
    take = Learner.take

    def spied(learner, step, learning_rate):
        outcome = take(learner, step, learning_rate)
        taken.append(outcome.batch)
        return outcome

    monkeypatch.setattr(Learner, "take", spied)
    go(settings(norm="pre", max_steps=6), "one")
    go(settings(norm="post", max_steps=6, model__position="none"), "other")
    assert len(taken) == 2 * 6
    for one, other in zip(taken[:6], taken[6:], strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert torch.equal(one.positions, other.positions) and torch.equal(one.targets, other.targets)
    assert not torch.equal(taken[0].tokens, taken[1].tokens)


def test_accumulation_is_the_whole_batch(settings, go):
    still = {"model__dropout": 0.0, "model__attention_dropout": 0.0, "max_steps": 10}
    for size in (8, 3, 1):
        config = settings(trainer__micro_batch=size, **still)
        config = config.model_copy(update={"variant": config.variant | {"dropout": 0.0}})
        result, folder = go(config, f"micro{size}")
        assert result.micro_batch == size
        if size == 8:
            whole = [(line["loss"], line["gradient_norm"]) for line in folder.metrics.read()]
        else:
            parts = [(line["loss"], line["gradient_norm"]) for line in folder.metrics.read()]
            assert parts[0] == pytest.approx(whole[0], rel=1e-5)
            assert np.array(parts) == pytest.approx(np.array(whole), rel=1e-2)


def test_bf16_keeps_float32_weights_and_says_so(settings, go):
    result, folder = go(settings(precision="bf16", max_steps=5))
    assert result.precision == "bf16"
    stored = load_file(max(folder.checkpoint.glob("step-*.safetensors")))
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}


def test_the_clock_ends_a_run_and_the_end_is_evaluated(settings, go, monkeypatch):
    config = settings(trainer__max_steps=10**6, trainer__max_minutes=0.01, trainer__evaluate_every=10**6)
    result, folder = go(config)
    assert result.status == "done" and 0 < result.steps < 10**6
    assert result.wall_seconds >= 0.6
    # its only evaluation is early in the planned steps, but not in those that were taken
    assert result.late_gain is None
    assert folder.metrics.read()[-1]["validation_loss"] == result.validation_loss
    # the result is lost, and the run that goes on knows that it is over
    (folder.path / "result.json").unlink()
    again, _ = go(config)
    assert again.steps == result.steps and again.validation_loss == result.validation_loss


def test_the_late_gain_is_that_after_nine_tenths_of_the_steps_taken(plain_run):
    result, folder = plain_run
    (before, after) = (line["validation_loss"] for line in folder.metrics.read() if "validation_loss" in line)
    assert (result.steps, result.late_gain) == (20, before - after)
    evaluations = [(10, 5.0), (18, 4.0), (19, 3.5), (20, 3.0)]
    assert late_gain(evaluations, 20) == 1.0 and late_gain(evaluations[:3], 19) == 1.5
    # without an evaluation early enough, or of the last weights
    assert late_gain(evaluations[1:3], 19) is late_gain(evaluations, 21) is late_gain([], 0) is None


def test_a_finished_run_without_its_result_gives_it_again(settings, go, plain_copy, change_header):
    first, folder = plain_copy
    (folder.path / "result.json").unlink()
    # far more than a start of the test uses
    change_header(folder, usage={"wall_seconds": 1e6, "processor_seconds": 2e6, "peak_memory_bytes": 10**15})
    again, _ = go(settings())
    measured = {
        "wall_seconds",
        "processor_seconds",
        "tokens_per_second",
        "tokens_per_second_spread",
        "peak_memory_bytes",
        "peak_memory_of_all_bytes",
        "waited_for_cores",
    }
    meanings = {"peak_memory_meaning", "throughput_meaning"}
    one, other = first.to_dict(), again.to_dict()
    assert all(one[key] == other[key] for key in one.keys() - measured - meanings)
    assert again.wall_seconds > 1e6 and again.processor_seconds > 2e6 and again.peak_memory_bytes == 10**15
    assert again.tokens_per_second == first.tokens_per_second


def test_a_speed_that_was_measured_on_a_busy_machine_stays_one_when_the_run_is_continued_alone(
    settings, go, plain_copy, change_header
):
    _, folder = plain_copy
    (folder.path / "result.json").unlink()
    change_header(folder, usage={"cells_at_once": 8, "waited_for_cores": 0.75})
    again, _ = go(settings(), neighbours=SimpleNamespace(cells_at_once=1, waited_share=lambda: 0.25))
    assert (again.cells_at_once, again.waited_for_cores) == (8, 0.75)


def test_speeds_on_another_device_do_not_count(settings, go, plain_copy, change_header, monkeypatch):
    _, folder = plain_copy
    (folder.path / "result.json").unlink()
    change_header(folder, rates=[1e12] * 99, usage={"cells_at_once": 8, "waited_for_cores": 0.75})
    monkeypatch.setattr(set_up, "device_name", lambda device: "another")
    again, _ = go(settings())
    assert again.status == "done" and again.tokens_per_second is None
    assert again.cells_at_once == 1 and again.waited_for_cores != 0.75


def test_a_run_that_goes_on_from_its_first_checkpoint_has_no_peak_of_the_preparation(settings, go, monkeypatch):
    find_kernels, take_step = set_up.find_kernels, train_module.take_step

    def with_much_memory(run):
        torch.ones(1 << 27)
        find_kernels(run)

    def broken(run, step):
        raise ValueError("before the first step")

    monkeypatch.setattr(set_up, "find_kernels", with_much_memory)
    monkeypatch.setattr(train_module, "take_step", broken)
    with pytest.raises(ValueError, match="before the first step"):
        go(settings())
    monkeypatch.setattr(train_module, "take_step", take_step)
    result, _ = go(settings())
    assert result.status == "done" and result.peak_memory_bytes < resident_bytes() + (1 << 28)


def test_the_threads_are_those_of_the_settings_and_of_nothing_else(settings, go, monkeypatch, capfd):
    busy = SimpleNamespace(cells_at_once=1, waited_share=lambda: 0.52)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        result, folder = go(settings(max_steps=2), neighbours=busy)
    finally:
        torch.set_num_threads(before)
    assert result.device.endswith(", 1 thread") and result.waited_for_cores == 0.52
    assert folder.environment()["waited_for_cores"] == 0.52
    assert "this machine is busy: so far the run waited 52%" in (folder.path / "log.txt").read_text()


def test_a_long_run_on_fewer_threads_than_cores_says_so_once(settings, go, monkeypatch, capfd):
    monkeypatch.setattr("experiments.training.set_up.usable", lambda: list(range(16)))
    go(settings(max_steps=2), "short")
    assert "cores" not in capfd.readouterr().err
    monkeypatch.setattr("experiments.training.set_up.LONG_STEPS", 2)
    go(settings(max_steps=2), "long")
    assert capfd.readouterr().err.count("on 1 of 16 cores; trainer.threads=16 is faster, but makes another run") == 1


def test_a_run_goes_on_with_the_kernel_that_it_began_with(settings, go, monkeypatch, tmp_path):
    batch = Learner.batch

    def cut(learner, index):
        if index == 12:
            raise KeyboardInterrupt
        return batch(learner, index)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Learner, "batch", cut)
        go(settings())
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*") if path.suffix != ".txt"}
    with monkeypatch.context() as patched, pytest.raises(Mistake) as refused:
        patched.setattr("experiments.training.set_up.kernels", lambda learner, settings: "reference")
        go(settings())
    assert "was begun with the attention kernel" in str(refused.value)
    assert "would continue with reference" in str(refused.value)
    after = {path: path.read_bytes() for path in before if path.name != "result.json"}
    assert all(before[path] == content for path, content in after.items())
    result, _ = go(settings())
    assert result.status == "done" and result.backend != "reference"


def test_a_run_goes_on_in_the_precision_that_it_began_with(settings, go, monkeypatch):
    """Where precision=auto would now be another one, for the passes and for the products of Muon."""
    config = settings(precision="auto", max_steps=4, trainer__max_steps=4)
    config = config.model_copy(update={"optimizer": compose(["optimizer=muon"]).optimizer})
    precisions, take, fast = [], Learner.take, True

    def spied(learner, step, learning_rate):
        if fast and step == 3:
            raise KeyboardInterrupt
        precisions.append((learner.forward.precision, learner.optimizers[0].products))
        return take(learner, step, learning_rate)

    monkeypatch.setattr(Learner, "take", spied)
    monkeypatch.setattr("experiments.measure.hardware.fast_bf16", lambda device: fast)
    with pytest.raises(KeyboardInterrupt):
        go(config)
    fast = False
    result, _ = go(config)
    assert result.precision == "bf16" and {*precisions} == {("bf16", torch.bfloat16)}


def test_dropout_is_a_function_of_seed_and_step(settings, go, outcome):
    short = {"max_steps": 5, "trainer__evaluate_every": 5}
    torch.manual_seed(1)
    _, one = go(settings(**short), "one")
    torch.manual_seed(2)
    _, other = go(settings(**short), "other")
    assert outcome(one) == outcome(other)
    _, third = go(settings(seed=1, **short), "third")
    assert third.metrics.read()[0]["loss"] != one.metrics.read()[0]["loss"]


def test_losses_and_perplexity_are_those_without_label_smoothing(settings, go, plain_run):
    _, folder = go(settings(trainer__label_smoothing=0.2, max_steps=1, trainer__max_steps=1))
    (smoothed,), plain = folder.metrics.read(), plain_run[1].metrics.read()[0]
    assert smoothed["loss"] == plain["loss"] and smoothed["perplexity"] == plain["perplexity"]
    # before the first step every token is about as likely
    assert smoothed["smoothed_loss"] != smoothed["loss"] == pytest.approx(smoothed["smoothed_loss"], rel=0.05)
    assert "smoothed_loss" not in plain


def test_mirrors_start_after_the_first_step_and_have_its_metrics(settings, go, monkeypatch):
    events = []
    taken, started, logged = train_module.take_step, Mirrors.start, Mirrors.log

    def noted(event, call):
        return lambda owner, *values: (events.append(event), call(owner, *values))

    monkeypatch.setattr(train_module, "take_step", noted("step", taken))
    monkeypatch.setattr(Mirrors, "start", noted("start", started))
    monkeypatch.setattr(Mirrors, "log", noted("log", logged))
    go(settings(max_steps=2, trainer__max_steps=2))
    assert events == ["step", "start", "log", "step", "log"]


def test_a_run_that_fails_at_its_first_step_is_mirrored(settings, go, monkeypatch, tmp_path):
    pytest.importorskip("tensorboard")

    def no_memory(run, step):
        raise OutOfMemoryError("not even one sequence fits")

    monkeypatch.setattr(train_module, "take_step", no_memory)
    result, _ = go(settings(logger__tensorboard=True))
    assert result.status == "oom"
    assert [*(tmp_path / "tensorboard" / "run").glob("events.out.tfevents.*")]


def test_a_checkpoint_of_another_configuration_is_refused(settings, plain_copy):
    _, folder = plain_copy
    with Display() as display, pytest.raises(Mistake, match="to another configuration"):
        train(settings(seed=1), folder, display, Neighbours())


def test_what_the_user_must_change_is_said_and_recorded(settings, go, tmp_path):
    with pytest.raises(Mistake, match="the run has no end"):
        go(settings(trainer__max_steps=None))
    result = json.loads(Path(tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "failed" and "the run has no end" in result["reason"]


def test_an_error_of_a_step_is_recorded_and_leaves_as_it_is(settings, go, monkeypatch, tmp_path):
    def broken(run, step):
        raise ValueError("shapes")

    monkeypatch.setattr(train_module, "take_step", broken)
    with pytest.raises(ValueError, match="shapes"):
        go(settings())
    assert json.loads((tmp_path / "run" / "result.json").read_text())["reason"] == "shapes"


def test_a_finished_run_in_the_folder_of_another_is_not_taken_for_that_one(settings, plain_copy):
    result, folder = plain_copy
    check_unchanged(settings(), folder, result)
    with pytest.raises(DataError, match=r"run: contains a run of another configuration \(digest \w{8}, not \w{8}\)"):
        check_unchanged(settings(seed=1), folder, result)


def test_a_run_of_other_tokens_with_equal_counts_is_neither_done_nor_continued(settings, go, plain_copy, tmp_path):
    """As in a cache that another version of `tokenizers` has filled."""

    def swap_two_tokens(partial):
        for part in manifest["files"]:
            shutil.copy(Path(settings().cache) / name / part, partial)
        tokens = np.fromfile(partial / "train", dtype="<u2")
        tokens[1:3] = tokens[2:0:-1]
        tokens.tofile(partial / "train")
        return manifest["facts"]

    result, folder = plain_copy
    cache = Path(shutil.copytree(settings().cache, tmp_path / "cache", ignore=shutil.ignore_patterns("runs", "notes")))
    own = settings().model_copy(update={"cache": str(cache)})
    check_unchanged(own, folder, result)
    (name,) = result.sequences
    manifest = json.loads((cache / name / "manifest.json").read_text())
    shutil.rmtree(cache / name)
    check_unchanged(own, folder, result)
    kind, _, key = name.partition("/")
    Cache(cache, print).obtain(kind, key, swap_two_tokens)
    with pytest.raises(DataError, match=r"run was trained on other tokens of its text than cache=.* now has"):
        check_unchanged(own, folder, result)
    (folder.path / "result.json").unlink()
    with pytest.raises(Mistake, match=r"run was trained on other tokens of its text .*; restore them, or start again"):
        go(own)


def test_a_run_that_is_refused_keeps_the_tokenizer_of_its_weights(settings, go, corpus, tmp_path):
    text = Path(shutil.copy(corpus, tmp_path / "text.txt"))
    config = settings(data__train=str(text), max_steps=1)
    _, folder = go(config)
    (folder.path / "result.json").unlink()
    before = folder.tokenizer_file().read_bytes()
    text.write_text(text.read_text().replace("bird", "wolf"))
    with pytest.raises(Mistake, match=r"the text or the tokenizer has changed since .*run was begun; restore it"):
        go(config)
    assert folder.tokenizer_file().read_bytes() == before


def test_a_run_of_other_code_is_neither_done_nor_continued(settings, go, plain_copy, monkeypatch, tmp_path):
    """A change of one character in a base class or in the optimizer makes other code; a comment does not."""

    def edited(name, path, before, after):
        copy = tmp_path / name
        for room in ("attention", "experiments"):
            shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__", "assets"))
        text = (copy / path).read_text()
        assert before in text
        (copy / path).write_text(text.replace(before, after))
        monkeypatch.setattr(digests, "ROOT", copy)

    def refused(file, result, folder):
        with pytest.raises(DataError, match=rf"the code \({file}\) has changed since .*run was trained"):
            check_unchanged(settings(), folder, result)
        (folder.path / "result.json").unlink(missing_ok=True)
        with pytest.raises(Mistake, match=rf"the code \({file}\) has changed since .*run was begun"):
            go(settings())

    result, folder = plain_copy
    edited(
        "comment", "attention/layers/attention_layer.py", "class AttentionLayer(", "# a comment\nclass AttentionLayer("
    )
    check_unchanged(settings(), folder, result)
    (folder.path / "result.json").unlink()
    go(settings())
    edited("code", "attention/layers/attention_layer.py", "class AttentionLayer(", "class AttentionLayers(")
    refused(r"attention/layers/attention_layer\.py", result, folder)
    groups = "experiments/training/step/optimizers/parameter_groups.py"
    edited("optimizer", groups, '"rate_factor": factor', '"rate_factor": factor + 0')
    refused(r"experiments/training/step/optimizers/parameter_groups\.py", result, folder)
    assert any(folder.checkpoint.glob("*"))
