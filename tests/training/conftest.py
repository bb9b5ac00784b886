"""A tiny corpus, and settings of a model that trains in a second on one thread."""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path

import pytest

from experiments.display.progress import Display
from experiments.measure.cores import Neighbours
from experiments.processes.interruption import Interrupted
from experiments.record.checkpoint_file import load, save
from experiments.record.folder import RunFolder
from experiments.record.result import Result
from experiments.settings.run import Settings
from experiments.training import train as train_module
from experiments.training.distributed.follower import follow
from experiments.training.distributed.group import DistributedWorld
from experiments.training.run import Run
from experiments.training.step.learner import Learner
from experiments.training.train import train
from tests.fixtures.device import skip_where_no_process_can_be_forked
from tests.fixtures.outcome import outcome as of_folder
from tests.training.distributed.forked import PARTS, Processes, losses

WIDTH, HEADS, LAYERS, LENGTH, BATCH = 32, 4, 2, 16, 8


def tiny(cache: Path, text: Path, **changes) -> Settings:
    """`changes`: keys of a group as `trainer__guard="skip"`."""
    tree = {
        "heads": HEADS,
        "key_size": WIDTH // HEADS,
        "value_size": WIDTH // HEADS,
        "hidden_size": WIDTH,
        "layers": LAYERS,
        "norm": "pre",
        "length": LENGTH,
        "batch_size": BATCH,
        "learning_rate": 1e-2,
        "max_steps": 20,
        "precision": "fp32",
        "backend": "auto",
        "seed": 0,
        "runs": str(cache / "runs"),
        "cache": str(cache),
        "variant": {
            "name": "multi_head",
            "hidden_size": WIDTH,
            "memory_size": WIDTH,
            "heads": HEADS,
            "key_size": WIDTH // HEADS,
            "value_size": WIDTH // HEADS,
            "scaled": True,
            "linear_bias": True,
            "dropout": 0.1,
            "backend": "auto",
        },
        "model": {
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "embedding_size": WIDTH,
            "layers": LAYERS,
            "sharing": "none",
            "length": LENGTH,
            "norm": "pre",
            "first_norm": True,
            "norm_kind": "layer",
            "norm_epsilon": 1e-6,
            "embedding_norm": True,
            "position": "learned",
            "rotary_base": 10000.0,
            "local_window": None,
            "segment_length": None,
            "global_every": 3,
            "local_rotary_base": 10000.0,
            "sinusoidal_base": 10000.0,
            "position_start": "normal",
            "relative_buckets": 8,
            "relative_distance": 16,
            "activation": "gelu",
            "gated": False,
            "linear_bias": True,
            "token_types": 0,
            "head_transform": False,
            "tied": True,
            "head_bias": True,
            "output_scaled": False,
            "branches_scaled": False,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "initial_std": 0.02,
        },
        "objective": {"kind": "masked", "rate": 0.15, "mask_share": 0.8, "random_share": 0.1, "evaluation_seed": 0},
        "data": {"kind": "text", "documents": "blank_line", "train": str(text), "validation": None, "test": None},
        "tokenizer": {"kind": "byte_bpe", "vocabulary_size": 300},
        "optimizer": {
            "kind": "adamw",
            "learning_rate": 1e-2,
            "head_mixing_rate_factor": 1.0,
            "position_rate_factor": 1.0,
            "weight_decay": 0.01,
            "beta1": 0.9,
            "beta2": 0.98,
            "epsilon": 1e-8,
            "clip": 1.0,
        },
        "schedule": {"kind": "linear", "warmup_steps": 4, "final": 0.0},
        "trainer": {
            "batch_size": BATCH,
            "micro_batch": None,
            "max_steps": 20,
            "max_tokens": None,
            "max_minutes": None,
            "precision": "fp32",
            "device": "cpu",
            "devices": 1,
            "sharded": False,
            "threads": 1,
            "compile": False,
            "label_smoothing": 0.0,
            "log_every": 1,
            "evaluate_every": 10,
            "evaluation_sequences": 16,
            "checkpoint_every": 5,
            "guard": "stop",
            "guard_limit": 2,
        },
        "logger": {
            "wandb": "off",
            "tensorboard": False,
            "trackio": False,
            "project": "test",
            "entity": None,
            "group": None,
            "tags": [],
        },
    }
    for key, value in changes.items():
        group, _, name = key.rpartition("__")
        # what stands above is the same in every group
        for place in (
            [tree, *map(tree.get, ("variant", "model", "optimizer", "trainer"))] if name in tree else [tree[group]]
        ):
            if name in place:
                place[name] = value
    return Settings.model_validate_json(json.dumps(tree))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Sentences of a few words that follow each other by chance: something to learn, and not everything."""
    chance = random.Random(0)
    nouns, verbs = ["cat", "dog", "bird", "king", "child"], ["sees", "hears", "finds", "follows"]
    sentences = (f"The {chance.choice(nouns)} {chance.choice(verbs)} the {chance.choice(nouns)}." for _ in range(3000))
    text = tmp_path_factory.mktemp("corpus") / "text.txt"
    text.write_text("\n\n".join(sentences), encoding="utf-8")
    return text


@pytest.fixture(scope="session")
def settings(corpus):
    """settings(trainer__guard="skip", ...) -> Settings"""
    return lambda **changes: tiny(corpus.parent / "cache", corpus, **changes)


def train_in(path: Path, settings: Settings, neighbours=None, pruner=None) -> tuple[Result, RunFolder]:
    with RunFolder(path) as folder, Display() as display:
        folder.create(settings.model_dump())
        return train(settings, folder, display, neighbours or Neighbours(), pruner=pruner), folder


@pytest.fixture
def go(tmp_path):
    """go(settings, name, neighbours, pruner) -> (result, folder): trains in a folder of that name."""
    return lambda settings, name="run", *others, **named: train_in(tmp_path / name, settings, *others, **named)


@pytest.fixture(scope="session")
def plain_run(settings, tmp_path_factory):
    """(result, folder) of the settings without any change, to look at and to compare with."""
    return train_in(tmp_path_factory.mktemp("plain") / "run", settings())


@pytest.fixture
def plain_copy(plain_run, tmp_path):
    """The same, in the folder in which `go` trains when it is given no name: it may be changed."""
    result, folder = plain_run
    return result, RunFolder(shutil.copytree(folder.path, tmp_path / "run"))


@pytest.fixture
def change_header():
    """change_header(folder, rates=[1.0]): changes what the newest checkpoint of a run says besides its tensors."""

    def change(folder, **changes):
        newest = load(folder.checkpoint, "newest", print)
        save(folder.checkpoint, "newest", newest.step, newest.tensors, newest.header | changes)

    return change


@pytest.fixture(scope="session")
def outcome():
    """outcome(folder): all that a run on a CPU must end with, however often it was cut."""
    return of_folder


@pytest.fixture
def ends_alike_when_cut(go, outcome, monkeypatch):
    """ends_alike_when_cut(settings, step) -> (result, folder) of a run that is cut before a step and goes on.

    It must end as a run that is not cut.
    """

    def check(settings: Settings, step: int) -> tuple[Result, RunFolder]:
        take_step = train_module.take_step

        def cut(run: Run, number: int) -> None:
            if number == step:
                raise Interrupted(signal.SIGTERM)
            take_step(run, number)

        _, whole = go(settings, "whole")
        with monkeypatch.context() as patched, pytest.raises(Interrupted):
            patched.setattr(train_module, "take_step", cut)
            go(settings, "cut")
        result, folder = go(settings, "cut")
        assert result.status == "done" and len(folder.environment()["earlier"]) == 1
        assert outcome(folder) == outcome(whole)
        return result, folder

    return check


@pytest.fixture
def processes(tmp_path):
    """processes(size, work, kind) -> Processes; none is left at the end."""
    skip_where_no_process_can_be_forked()
    started = []

    def start(size, work, kind=DistributedWorld):
        started.append(Processes(tmp_path, size, work, kind))
        return started[-1]

    yield start
    for each in started:
        for process in each.processes:
            process.kill()


@pytest.fixture
def member(tmp_path):
    """member(settings, name)(group): takes its part in a run, as the process that leads or as one that follows."""

    def make(settings, name="run"):
        def work(group):
            if group.rank:
                return follow(settings, group)
            with RunFolder(tmp_path / name) as folder, Display() as display:
                folder.create(settings.model_dump())
                return train(settings, folder, display, Neighbours(), group)

        return work

    return make


@pytest.fixture
def stops(monkeypatch) -> list[int]:
    """Steps; at the last of them, SIGTERM reaches the process that leads."""
    take, steps = Learner.take, []

    def cut(learner, step, learning_rate):
        if step in steps[-1:] and learner.forward.world.rank == 0:
            signal.raise_signal(signal.SIGTERM)
        return take(learner, step, learning_rate)

    monkeypatch.setattr(Learner, "take", cut)
    return steps


@pytest.fixture(scope="session")
def reference(settings, tmp_path_factory):
    """The losses, a step each, of the run in one process."""
    _, folder = train_in(tmp_path_factory.mktemp("one") / "run", settings(**PARTS))
    return losses(folder)
