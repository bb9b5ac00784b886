"""A learner's steps without a run around them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.tasks.pretraining import Pretraining
from experiments.training.set_up import kernels
from experiments.training.step import micro_batches
from experiments.training.step.learner import Learner, learner_of
from experiments.training.step.world import World


@pytest.fixture
def learner(settings):
    """A learner of a tiny model with dropout."""

    def make(precision="fp32", optimizer=None, **changes) -> Learner:
        config = settings(**changes)
        if optimizer:
            config = config.model_copy(update={"optimizer": compose([f"optimizer={optimizer}"]).optimizer})
        task = Pretraining(config)
        dataset = task.prepare(lambda *_: None)
        model = task.build_initialized_model(dataset.tokenizer.vocabulary_size)
        objective = task.objective(dataset.tokenizer)
        return learner_of(config, model, objective, dataset.train, device=torch.device("cpu"), precision=precision)

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


def test_a_step_with_nothing_to_predict_changes_nothing(learner, settings, monkeypatch):
    one = learner()
    before = [parameter.clone() for parameter in one.parameters()]
    one.sequences = one.sequences._replace(tokens=np.full_like(one.sequences.tokens, 2))
    batch = one.batch
    monkeypatch.setattr(one, "batch", lambda index: batch(index)._replace(labels=torch.ones(8, dtype=torch.long)))
    outcome = one.take(1, 1e-3)
    assert len(outcome.batch.targets) == outcome.gradient_norm == float(torch.stack(outcome.sums).sum()) == 0
    # or labels whose loss was not computed would be counted
    assert outcome.batch.labels is None
    monkeypatch.undo()
    assert all(map(torch.equal, before, one.parameters()))
    # a whole split of such steps is a mistake
    with pytest.raises(Mistake, match="finds nothing to predict in the train split at length=16"):
        kernels(one, settings())


def test_the_outcome_of_a_step_is_that_of_its_gradient(learner):
    one, other = learner(trainer__micro_batch=3), learner(trainer__micro_batch=3)
    outcome, sums = one.take(1, 1e-3), other.gradient(other.batch(0), 0)
    assert [float(each) for each in outcome.sums] == [float(each) for each in sums]
    assert outcome.gradient_norm == float(other.gradient_norm()) > 0


@pytest.mark.parametrize("clip", [0.01, 1e6, None])
def test_an_update_follows_the_gradient_clipped_to_its_largest_norm(learner, clip):
    one = learner(optimizer__clip=clip)
    before = [parameter.detach().clone() for parameter in one.parameters()]
    one.optimizers = [torch.optim.SGD([{"params": one.parameters(), "rate_factor": 1.0}])]
    norm = one.take(1, 100.0).gradient_norm
    moved = torch.stack([(old - new.detach()).norm() for old, new in zip(before, one.parameters(), strict=True)]).norm()
    assert norm > 0.02
    assert float(moved) == pytest.approx(100 * min(norm, clip or norm), rel=1e-3)


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


def test_memory_that_runs_out_in_the_term_of_a_regularizer_is_known_to_all_processes(learner):
    class Term:
        full = True

        def parameters(self):
            return ()

        def forward_passes(self, index):
            return nullcontext()

        def term(self):
            if self.full:
                self.full = False
                raise MemoryError
            return torch.zeros((), requires_grad=True)

    class Noting(World):
        def any(self, flag):
            asked.append(flag)
            return flag

    one, asked = learner(), []
    one.regularizer, one.forward = Term(), replace(one.forward, world=Noting())
    one.gradient(one.batch(0), 0)
    assert asked == [True, False] and one.micro_batch == 4


def test_graphs_are_given_up_when_memory_runs_out_before_it_is_given_back(learner, monkeypatch):
    one, there = learner(), []

    def full(forward, batch, index, micro_batch, say):
        raise MemoryError

    one.graphs = SimpleNamespace(backward=full)
    monkeypatch.setattr(
        "experiments.training.step.learner.give_back_freed_memory", lambda: there.append(one.graphs is not None)
    )
    one.gradient(one.batch(0), 0)
    assert there == [False] and one.graphs is None and one.micro_batch == 4


def test_graphs_are_for_whole_batches(learner, monkeypatch):
    monkeypatch.setattr("experiments.training.step.learner.graphs_of", lambda *arguments: arguments)
    assert learner().graphs and not learner(trainer__micro_batch=7).graphs


class Products(TorchDispatchMode):
    """Collects the types in which matrices are multiplied."""

    def __init__(self):
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in ("mm", "addmm", "bmm", "baddbmm", "mv", "dot"):
            self.types |= {each.dtype for each in args if isinstance(each, torch.Tensor)}
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [*(("fp32", each) for each in options("optimizer")), ("bf16", "adamw"), ("bf16", "muon")],
)
def test_every_product_of_a_step_has_the_precision_of_the_run(learner, precision, optimizer):
    """A product in bf16 would take most of a step where the CPU has no instructions for it."""
    one = learner(precision, optimizer)
    with Products() as products:
        one.take(1, 1e-3)
    assert products.types == {torch.float32 if precision == "fp32" else torch.bfloat16}
