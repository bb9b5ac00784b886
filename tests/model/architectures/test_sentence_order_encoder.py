from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from experiments.objectives.loss import predict
from experiments.objectives.objective import Batch
from experiments.training.step.micro_batches import Forward, backward

POSITIONS, LABELS = torch.tensor([1, 4, 8, 12, 20]), torch.tensor([1, 0, 1])


@pytest.fixture
def model_of(bert_of):
    return lambda **changes: bert_of(architecture="sentence_order_encoder", **changes)


@pytest.fixture
def batch(tokens):
    types = torch.randint(2, tokens.shape, generator=torch.Generator().manual_seed(0))
    return Batch({"tokens": tokens, "token_types": types}, POSITIONS, torch.arange(5), 7, labels=LABELS)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_token_logits_are_those_of_bert(bert_of, model_of, tokens, norm):
    model, bert = model_of(norm=norm), bert_of(norm=norm)
    logits, classes = model(tokens, POSITIONS, classes=True)
    assert_close(logits, bert(tokens, POSITIONS), rtol=0, atol=1e-12)
    assert_close(model(tokens, POSITIONS), logits, rtol=0, atol=1e-12)
    hidden = bert.encoder(bert.embedding(tokens), rotary=bert.rotary)[:, 0]
    assert_close(classes, model.order(hidden), rtol=0, atol=1e-12)
    assert {name.split(".")[0] for name in model.state_dict().keys() - bert.state_dict().keys()} == {"order"}


def test_the_loss_by_hand(model_of, batch):
    model = model_of(token_types=2)
    logits, classes = model(**batch.inputs, positions=POSITIONS, classes=True)
    tokens = -logits.log_softmax(-1)[torch.arange(5), torch.arange(5)]
    labels = -classes.log_softmax(-1)[torch.arange(3), LABELS]
    _, found = predict(model, batch)
    assert_close(found.tokens, tokens.sum())
    assert_close(found.labels, labels.sum())
    assert int(found.correct) == int((classes.argmax(-1) == LABELS).sum())
    assert_close(found.mean(batch), tokens.mean() + labels.mean())


@pytest.mark.parametrize("size", [1, 2])
def test_accumulated_it_is_the_whole_batch(model_of, batch, size):
    # the last sequence has no position to predict, and its label counts all the same
    batch = batch._replace(positions=POSITIONS[:4], targets=batch.targets[:4])
    gradients, totals = [], []
    for micro_batch in (3, size):
        model = model_of(token_types=2)
        totals.append(backward(Forward(model, torch.device("cpu"), "fp32", 0), batch, 1, micro_batch))
        gradients.append([parameter.grad for parameter in model.parameters()])
    for whole, parts in zip(*gradients, strict=True):
        assert_close(whole, parts)
    assert_close(torch.stack(totals[0]), torch.stack(totals[1]))


def test_nothing_leaks(model_of, batch):
    """Padding changes no logit; and with the table of types left out, types change none either."""
    mask = torch.arange(7) < torch.tensor([7, 5, 3])[:, None]
    model = model_of(token_types=2)
    other = torch.where(mask, batch.tokens, (batch.tokens + 1) % 23)
    first, second = (
        model(tokens, POSITIONS[:3], token_types=batch.inputs["token_types"], mask=mask, classes=True)
        for tokens in (batch.tokens, other)
    )
    for one, changed in zip(first, second, strict=True):
        assert_close(one, changed, rtol=0, atol=1e-12)
    plain = model_of()
    assert_close(plain(**batch.inputs), plain(batch.tokens), rtol=0, atol=0)


def test_a_table_of_one_type_tells_no_segments_apart(model_of, batch):
    model = model_of(token_types=1)
    assert_close(model(**batch.inputs), model(batch.tokens), rtol=0, atol=0)
    assert_close(model(**batch.inputs, positions=POSITIONS, classes=True), model(batch.tokens, POSITIONS, classes=True))


def test_flops_and_parameters(model_of, batch):
    model = model_of(token_types=2)
    with FlopCounterMode(display=False) as counter:
        sum(logits.sum() for logits in model(**batch.inputs, positions=POSITIONS, classes=True)).backward()
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(7, 5 / 21) * 21, rel=1e-12)
    assert model.parameter_counts()["output"] == 23 + (12 * 12 + 12) + (12 * 2 + 2)
