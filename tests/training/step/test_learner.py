"""A learner's steps without a run around them."""

from __future__ import annotations

import pytest
import torch

from experiments.tasks.pretraining import Pretraining
from experiments.training.step import micro_batches
from experiments.training.step.learner import Learner, learner_of


@pytest.fixture
def learner(settings):
    """A learner of a tiny model with dropout."""

    def make(**changes) -> Learner:
        config = settings(**changes)
        task = Pretraining(config)
        dataset = task.prepare(lambda *_: None)
        model = task.build_initialized_model(dataset.tokenizer.vocabulary_size)
        objective = task.objective(dataset.tokenizer)
        return learner_of(config, model, objective, dataset.train, device=torch.device("cpu"), precision="fp32")

    return make


def test_batch_masks_and_dropout_are_drawn_for_the_same_index(learner, monkeypatch):
    drawn = {"batch": [], "masks": [], "dropout": []}
    one = learner()
    batch, masks, dropout = one.batch, one.objective.batch, micro_batches.dropout_seed
    monkeypatch.setattr(one, "batch", lambda index: drawn["batch"].append(index) or batch(index))
    monkeypatch.setattr(
        one.objective, "batch", lambda rows, seed, step: drawn["masks"].append(step) or masks(rows, seed, step)
    )
    monkeypatch.setattr(
        micro_batches,
        "dropout_seed",
        lambda seed, step, index: drawn["dropout"].append(step) or dropout(seed, step, index),
    )
    for step in (1, 2, 3):
        one.take(step, 1e-3)
    assert drawn == {"batch": [0, 1, 2], "masks": [0, 1, 2], "dropout": [0, 1, 2]}


def test_a_step_is_a_function_of_the_weights_and_its_number(learner):
    one, other = learner(), learner()
    torch.manual_seed(7)
    outcomes = [one.take(step, 0.0) for step in (1, 2, 3)]
    again = other.take(3, 0.0)
    assert torch.equal(again.batch.tokens, outcomes[2].batch.tokens)
    assert float(again.sums.tokens) == float(outcomes[2].sums.tokens) != float(outcomes[1].sums.tokens)
    assert again.gradient_norm == outcomes[2].gradient_norm > 0


def test_a_gradient_in_parts_is_that_of_the_whole_and_halves_until_it_fits(learner, monkeypatch):
    still = {"model__dropout": 0.0, "model__attention_dropout": 0.0, "variant__dropout": 0.0}
    whole, parts = learner(**still), learner(**still)
    said, sizes = [], []
    parts.say = said.append
    backward = micro_batches.backward

    def limited(forward, batch, index, micro_batch):
        sizes.append(micro_batch)
        if micro_batch > 2:
            raise MemoryError
        return backward(forward, batch, index, micro_batch)

    monkeypatch.setattr("experiments.training.step.learner.backward", limited)
    parts.gradient(parts.batch(0), 0)
    monkeypatch.undo()
    whole.gradient(whole.batch(0), 0)
    assert sizes == [8, 4, 2] and parts.micro_batch == 2 and whole.micro_batch == 8
    assert [message.split(": ")[0] for message in said] == 2 * ["out of memory at step 1"]
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
