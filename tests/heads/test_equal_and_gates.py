"""Heads that start equal, and gates that open and close."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch

from experiments.config.groups import options
from experiments.heads.hooks import gated
from experiments.heads.measures import equal_start as equal
from experiments.heads.measures import l0_gates as gates
from experiments.heads.measures.equal_start import conclusion, head_spread, make_heads_equal
from experiments.heads.measures.l0_gates import gates_without_noise, open_probability, sample_gates
from experiments.heads.measures.pruning import remove_heads
from experiments.heads.options import HeadsOptions
from experiments.heads.sections import gates as gates_section
from experiments.heads.trained_run import TrainedRun
from experiments.settings.optimizer import AdamW
from experiments.training.step.learner import Learner
from experiments.training.step.micro_batches import Forward
from experiments.training.step.non_finite import NonFiniteError
from experiments.training.step.optimizers.build_optimizers import build_optimizers

OPTIMIZER = AdamW(
    kind="adamw",
    learning_rate=1e-2,
    head_mixing_rate_factor=1.0,
    position_rate_factor=1.0,
    weight_decay=0.0,
    beta1=0.9,
    beta2=0.99,
    epsilon=1e-8,
    clip=None,
)


SETTINGS = SimpleNamespace(optimizer=OPTIMIZER, seed=0)


class OneBatch(Learner):
    """A learner that sees the same batch in every step."""

    def batch(self, index):
        return self.sequences


def learner_on(batch, model, seed=0):
    forward = Forward(model, torch.device("cpu"), "fp32", seed)
    optimizers = build_optimizers(model, OPTIMIZER)
    return OneBatch(model, forward, None, batch, optimizers, batch_size=5, micro_batch=5, clip=None)


@pytest.mark.parametrize("position", ["rotary", "relative", "alibi"])
@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "additive", "general_bilinear"])
@pytest.mark.parametrize("output", [True, False])
def test_equal_heads_stay_equal_unless_their_output_maps_differ(bert_of, batch, variant, position, output):
    model = bert_of(variant, position=position)
    make_heads_equal(model, output=output)
    assert head_spread(model, batch.tokens) == 0
    learner = learner_on(batch, model)
    for step in range(1, 6):
        learner.take(step, OPTIMIZER.learning_rate)
    # a bilinear head has no values of its own, but its query parts as well
    assert head_spread(model, batch.tokens) < 1e-9 if output else head_spread(model, batch.tokens) > 1e-3


@pytest.mark.parametrize("variant", options("variant"))
def test_equal_heads_start_equal_with_any_position(bert_of, batch, variant):
    for position in ("rotary", "relative", "alibi"):
        model = bert_of(variant, position=position)
        if model.layers[0].attention.prunable:
            make_heads_equal(model)
            assert head_spread(model, batch.tokens) == 0


def test_the_verdict_is_about_the_last_step():
    by_start = {
        equal.ALL_EQUAL: [0, 1e-13],
        equal.OWN_OUTPUT_MAPS: [0, 0.2],
        equal.WITH_DROPOUT: [0, 1e-14],
        equal.INDEPENDENT: [1, 1],
    }
    assert "heads that start equal stay equal: after 1 steps" in conclusion(by_start)
    assert conclusion(by_start).endswith("They part when started all equal but the output map.")
    assert "do not stay equal" in conclusion(by_start | {equal.ALL_EQUAL: [0, 0.1]})


def test_the_hard_concrete_distribution():
    log_alpha = torch.tensor([-1.0, 0.0, 2.0])
    drawn = torch.stack([sample_gates(log_alpha, u.expand(3)) for u in (torch.arange(20000) + 0.5) / 20000])
    torch.testing.assert_close((drawn > 0).double().mean(0), open_probability(log_alpha).double(), atol=1e-3, rtol=0)
    assert (drawn == 0).any() and (drawn == 1).any() and drawn.min() >= 0 and drawn.max() <= 1
    assert open_probability(torch.zeros(1)).item() == pytest.approx(1 / (1 + (0.1 / 1.1) ** 0.33))
    assert gates_without_noise(torch.tensor([-10.0, 0.0, 10.0])).tolist() == [0, 0.5, 1]
    assert math.isclose(sample_gates(torch.zeros(1), torch.tensor(0.5)).item(), 0.5, rel_tol=1e-6)


@pytest.mark.parametrize("variant", options("variant"))
def test_folded_gates_are_gates(bert_of, batch, variant):
    model = bert_of(variant)
    if not model.layers[0].attention.prunable:
        pytest.skip("it declares that heads can't be left out")
    some = [torch.tensor([0.0, 0.5, 1.0]).double(), torch.tensor([1.0, 0.2, 0.0]).double()]
    with gated(model, some):
        expected = model(batch.tokens)
    gates.fold_gates(model, some)
    torch.testing.assert_close(model(batch.tokens), expected)
    remove_heads(model, [(0, 0), (1, 2)])
    torch.testing.assert_close(model(batch.tokens), expected)


@pytest.mark.parametrize(("position", "stay"), [("alibi", True), ("relative", True), ("rotary", False)])
def test_closed_heads_stay_if_the_positions_have_a_bias_for_every_head(
    bert_of, batch, trained_run_of, monkeypatch, position, stay
):
    model = bert_of("multi_head", position=position)
    some = [torch.tensor([0.0, 0.5, 1.0]).double(), torch.tensor([1.0, 0.2, 0.0]).double()]
    with gated(model, some):
        expected = model(batch.tokens)
    monkeypatch.setattr(TrainedRun, "masked_batches", lambda run: [batch])
    monkeypatch.setattr(gates, "finetune_with_gates", lambda run, steps, penalty: (copy.deepcopy(model), some))
    section = gates_section.make(trained_run_of(model), HeadsOptions(gates=1))
    tuned, removed = section.models["gated"]
    assert removed == ([] if stay else [(0, 0), (1, 2)])
    assert ("still has the closed heads" in section.text) == stay
    remove_heads(tuned.model, removed)
    torch.testing.assert_close(tuned.model(batch.tokens), expected)


def test_a_model_is_fine_tuned_with_dropout(bert_of, batch):
    """Its output then depends on the seed."""
    tuned = []
    for seed in (0, 1):
        model = bert_of("talking_heads", dropout=0.5, attention_dropout=0.5)
        run = SimpleNamespace(
            settings=SETTINGS, model=model, learner=lambda copied, seed=seed: learner_on(batch, copied, seed)
        )
        tuned.append(gates.finetune_with_gates(run, 1, 0.0)[0](batch.tokens))
    assert not torch.allclose(*tuned)


@pytest.mark.parametrize(("penalty", "left"), [(0.0, 6), (50.0, 0)])
def test_gates_stay_open_when_they_are_free_and_close_when_they_cost(bert_of, batch, penalty, left):
    model = bert_of("talking_heads").float()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = SimpleNamespace(settings=SETTINGS, model=model, learner=lambda copied: learner_on(batch, copied))
    tuned, opened = gates.finetune_with_gates(run, 120, penalty)
    assert not tuned.training
    assert sum(int((gate > 0).sum()) for gate in opened) == left
    assert tuned is not model and all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_the_gates_of_a_step_do_not_depend_on_the_micro_batch(bert_of, batch):
    log_alphas = []
    for micro_batch in (5, 2):
        model = bert_of("talking_heads")
        learner = learner_on(batch, model)
        learner.micro_batch, learner.regularizer = micro_batch, gates.HardConcreteGates(model, 0.1, seed=3)
        learner.gradient(batch, 0)
        log_alphas.append(torch.cat([each.grad for each in learner.regularizer.parameters()]))
    torch.testing.assert_close(*log_alphas)
    assert log_alphas[0].abs().min() > 0


def test_a_regularizer_that_is_not_finite_is_caught_before_a_weight_changes(bert_of, batch):
    model = bert_of("multi_head")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learner = learner_on(batch, model)
    learner.regularizer = gates.HardConcreteGates(model, float("nan"), seed=0)
    with pytest.raises(NonFiniteError, match=r"step 1 .*gradient norm nan"):
        learner.take(1, OPTIMIZER.learning_rate)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
