"""Heads that start equal, and gates that open and close."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from experiments.heads.hooks import gated
from experiments.heads.measures import equal_start as equal
from experiments.heads.measures import l0_gates as gates
from experiments.heads.measures.equal_start import make_equal, spread, verdict
from experiments.heads.measures.l0_gates import open_probability, sample, settled
from experiments.heads.measures.pruning import remove
from experiments.objectives.loss import loss
from experiments.settings.optimizer import AdamW
from experiments.training.optimizer import build_optimizers, step

OPTIMIZER = AdamW(
    kind="adamw",
    learning_rate=1e-2,
    projection_rate=1.0,
    weight_decay=0.0,
    beta1=0.9,
    beta2=0.99,
    epsilon=1e-8,
    clip=None,
)


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "additive", "general_bilinear"])
@pytest.mark.parametrize("output", [True, False])
def test_equal_heads_stay_equal_unless_their_output_maps_differ(bert_of, batch, variant, output):
    model = bert_of(variant)
    make_equal(model, output=output)
    assert spread(model, batch.tokens) == 0
    optimizers = build_optimizers(model, OPTIMIZER)
    for _ in range(5):
        model.zero_grad()
        loss(model(batch.tokens, batch.rows), batch.targets).backward()
        step(optimizers)
    # a bilinear head has no values of its own, but its query parts as well
    assert spread(model, batch.tokens) < 1e-9 if output else spread(model, batch.tokens) > 1e-3


def test_the_verdict_is_about_the_last_step():
    found = {equal.EQUAL: [0, 1e-13], equal.PARTED: [0, 0.2], equal.DROPPED: [0, 1e-14], equal.OWN: [1, 1]}
    assert "heads that start equal stay equal: after 1 steps" in verdict(found)
    assert verdict(found).endswith("They part when started all equal but the output map.")
    assert "do not stay equal" in verdict(found | {equal.EQUAL: [0, 0.1]})


def test_the_hard_concrete_distribution():
    log_alpha = torch.tensor([-1.0, 0.0, 2.0])
    drawn = torch.stack([sample(log_alpha, u.expand(3)) for u in (torch.arange(20000) + 0.5) / 20000])
    torch.testing.assert_close((drawn > 0).double().mean(0), open_probability(log_alpha).double(), atol=1e-3, rtol=0)
    assert (drawn == 0).any() and (drawn == 1).any() and drawn.min() >= 0 and drawn.max() <= 1
    assert open_probability(torch.zeros(1)).item() == pytest.approx(1 / (1 + (0.1 / 1.1) ** 0.33))
    assert settled(torch.tensor([-10.0, 0.0, 10.0])).tolist() == [0, 0.5, 1]
    assert math.isclose(sample(torch.zeros(1), torch.tensor(0.5)).item(), 0.5, rel_tol=1e-6)


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "general_bilinear", "low_rank_value"])
def test_folded_gates_are_gates(bert_of, batch, variant):
    model = bert_of(variant)
    some = [torch.tensor([0.0, 0.5, 1.0]).double(), torch.tensor([1.0, 0.2, 0.0]).double()]
    with gated(model, some):
        expected = model(batch.tokens)
    gates.fold(model, some)
    torch.testing.assert_close(model(batch.tokens), expected)
    remove(model, [(0, 0), (1, 2)])
    torch.testing.assert_close(model(batch.tokens), expected)


@pytest.mark.parametrize(("penalty", "left"), [(0.0, 6), (50.0, 0)])
def test_gates_stay_open_when_they_are_free_and_close_when_they_cost(bert_of, batch, monkeypatch, penalty, left):
    config = SimpleNamespace(optimizer=OPTIMIZER, seed=0)
    model = bert_of("talking_heads").float()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    monkeypatch.setattr(gates, "training_batch", lambda subject, step: batch)
    tuned, opened = gates.tune(SimpleNamespace(settings=config, model=model), 120, penalty)
    assert sum(int((gate > 0).sum()) for gate in opened) == left
    assert tuned is not model and all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
