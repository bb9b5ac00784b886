"""Every objective trains, is evaluated on what is fixed, and goes on after a cut as if not cut."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import yaml
from pydantic import TypeAdapter

from experiments.config.groups import options
from experiments.data.packing import Dataset
from experiments.model.build import build
from experiments.objectives.objective import build_objective
from experiments.record.result_numbers import OF_SOME_RUNS, value_of
from experiments.settings.conf_files import CONF
from experiments.settings.run import Objective, Settings
from experiments.tasks.pretraining import Pretraining
from experiments.training.evaluate import evaluate, evaluation_batches
from experiments.training.step.micro_batches import Forward
from tests.fixtures.campaign import in_campaigns

STEPS = 40
# translation needs sentence pairs: test_encoder_decoder.py
KINDS = [kind for kind in options("objective") if kind != "translation"]
# in a text of 16 tokens there would be one span, which is always at the end
CHANGED = {"span_corruption": {"rate": 0.4, "mean_span": 1.5}}


@pytest.fixture
def of_kind(settings):
    def make(kind: str, **changes) -> Settings:
        tree = yaml.safe_load((CONF / "objective" / f"{kind}.yaml").read_text()) | CHANGED.get(kind, {})
        return settings(**changes).model_copy(
            update={"objective": TypeAdapter(Objective).validate_python(tree)}
        )  # fmt: skip

    return make


def dataset_of(config: Settings) -> Dataset:
    return Pretraining(config).prepare(lambda *_: None)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_its_numbers_agree(of_kind, go, kind):
    config = of_kind(kind, max_steps=STEPS)
    result, folder = go(config)
    lines = folder.metrics.read()
    assert result.status == "done" and lines[-1]["loss"] < lines[0]["loss"] - 1
    # from ln of the vocabulary's size, 5.7, to the frequencies of single tokens at least
    assert result.validation_loss < result.unigram_loss + 0.3
    assert result.perplexity == pytest.approx(math.exp(result.validation_loss))
    # sentinels are no part of the text
    is_text = kind != "span_corruption"
    assert (result.bits_per_byte is not None) == ("bits_per_byte" in lines[0]) == is_text
    has_order = kind == "masked_sop"
    assert (result.order_loss is not None) == (result.order_accuracy is not None) == has_order
    assert {name for name in OF_SOME_RUNS if value_of(result, name) is not None} == {*config.measured}
    assert ("order_loss" in lines[0]) == has_order
    if has_order:
        assert lines[-1]["validation_order_loss"] == result.order_loss and 0 <= result.order_accuracy <= 1
        assert 0 < result.tokens < STEPS * 8 * 16
    else:
        assert result.tokens == STEPS * 8 * config.objective.tokens_read(16)


@pytest.mark.parametrize("kind", ["masked_sop", "span_corruption", *in_campaigns("masked", "causal", "permutation")])
def test_a_run_that_was_cut_ends_as_one_that_was_not(of_kind, ends_alike_when_cut, kind):
    ends_alike_when_cut(of_kind(kind, trainer__log_every=3, max_steps=10), 7)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_fixed_and_does_not_depend_on_the_parts(of_kind, kind):
    config = of_kind(kind)
    dataset = dataset_of(config)
    objective = build_objective(config.objective, dataset.tokenizer)
    size = dataset.tokenizer.vocabulary_size
    model = build(config.objective.architecture, config.model, config.variant, size, 0).double()
    found = []
    for seed, micro_batch in ((0, 64), (1, 7), (2, 1)):
        forward = Forward(model, torch.device("cpu"), "fp32", seed)
        score = evaluate(
            model, forward, dataset.validation, dataset.unigram, objective, sequences=70, micro_batch=micro_batch
        )
        found.append([value or 0.0 for value in dataclasses.astuple(score)])
    assert np.array(found[1:]) == pytest.approx(np.array([found[0]] * 2), rel=1e-12)
    first, again = (list(evaluation_batches(dataset.validation, objective, 70)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert all(torch.equal(one.inputs[name], other.inputs[name]) for name in one.inputs)
        assert torch.equal(one.positions, other.positions) and torch.equal(one.targets, other.targets)


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_and_steps_draw_anew(of_kind, kind):
    config = of_kind(kind)
    dataset = dataset_of(config)
    objective = build_objective(config.objective, dataset.tokenizer)
    rows = dataset.train.tokens[:8]
    drawn = {
        tuple(torch.cat([batch.positions, *(tensor.flatten() for tensor in batch.inputs.values())]).tolist())
        for batch in (objective.batch(rows, seed, step) for seed in range(3) for step in range(3))
    }
    assert len(drawn) == (1 if kind == "causal" else 9)
