"""Everything that can be chosen trains, and the first losses of each variant are those in losses.json.

After a change that should change losses, or for a new variant, write them again and look at the difference:

    ATTN_GOLDEN=write python -m pytest -n 0 tests/golden
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch

from experiments.cells.cell import execute, folder_of
from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.model.architectures import encoder
from experiments.settings.model import Model, Norm
from experiments.tasks.pretraining import Pretraining

STORED = Path(__file__).with_name("losses.json")
LOSSES = json.loads(STORED.read_text()) if STORED.exists() else {}

# too large to train, in need of a path, or of sentence pairs: each has a test of its own
ELSEWHERE = {"model=base", "tokenizer=file", "model=t5_base"}
ELSEWHERE |= {"objective=translation", "model=transformer_base", "model=transformer_nano"}
CHOICES = [
    f"{group}={option}"
    for group in ("schedule", "tokenizer", "optimizer", "objective", "trainer", "model")
    for option in options(group)
]
CHOICES += [f"norm={norm}" for norm in get_args(Norm)]
CHOICES += [
    f"model.{key}={each}" for key in ("norm_kind", "position") for each in get_args(Model.model_fields[key].annotation)
]

Train = Callable[..., Path]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture
def trained(tiny, cache, tmp_path) -> Train:
    """trained("max_steps=2", ...): the folder of a run at tiny sizes, in float32; a word replaces that of its key."""

    def train(*words: str, without: str = "") -> Path:
        fixed = [*tiny, "heads=2", "precision=fp32", "model.rotary_base=10000", f"runs={tmp_path}", f"cache={cache}"]
        replaced = {without, *(word.split("=")[0] for word in words)}
        settings = compose([*(word for word in fixed if word.split("=")[0] not in replaced), *words])
        # here, as the command would start a process for it
        Pretraining(settings).prepare(lambda *_: None)
        assert execute(settings) == 0
        return folder_of(settings).path

    return train


def losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.parametrize("variant", options("variant"))
def test_a_variant_learns_as_it_did(trained, variant):
    length = ("max_steps=20", "trainer.log_every=4", "trainer.evaluate_every=20", "trainer.checkpoint_every=20")
    # large logits from the start: else every variant attends evenly and has the losses of the others
    start = ("model.initial_std=0.3", "optimizer=adamw", "objective.rate=0.15")
    found = losses(trained(f"variant={variant}", *start, *length))
    if os.environ.get("ATTN_GOLDEN") == "write":
        LOSSES[variant] = [round(loss, 6) for loss in found]
        STORED.write_text(json.dumps(LOSSES, indent=2, sort_keys=True) + "\n")
    elif variant not in LOSSES:
        pytest.skip(f"no losses of {variant} are stored: ATTN_GOLDEN=write python -m pytest -n 0 tests/golden")
    assert found == pytest.approx(LOSSES[variant], rel=1e-3)


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice not in ELSEWHERE])
def test_a_choice_trains(trained, choice):
    assert len(losses(trained(choice, "max_steps=2", "trainer.log_every=1"))) == 2


def test_the_tokenizer_of_a_run_trains_another(trained):
    first = trained("max_steps=1")
    words = ("tokenizer=file", f"tokenizer.path={first / 'tokenizer.json'}", "trainer.log_every=1", "max_steps=2")
    assert len(losses(trained(*words, without="tokenizer.vocabulary_size"))) == 2


def test_the_base_model_has_the_parameters_of_bert_base():
    settings = compose(["model=base"])
    with torch.device("meta"):
        bert = encoder.Architecture(settings.model, settings.variant, vocabulary_size=30522)
    assert bert.parameter_counts()["total"] == 109_514_298
