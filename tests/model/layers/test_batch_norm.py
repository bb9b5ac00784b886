from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from experiments.failures.failure import Mistake
from experiments.model.layers.batch_norm import BatchNorm, commit, discard, tell_real

X = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]


def norm_of(masked: bool = False) -> BatchNorm:
    return BatchNorm(5, 1e-5, masked=masked).double()


def test_it_is_torchs_in_training_and_in_evaluation():
    ours, theirs = norm_of(), nn.BatchNorm1d(5, eps=1e-5).double()
    for x in (X, 3 * X.flip(0) + 1):
        x = x.clone().requires_grad_()
        outputs = ours(x), theirs(x.flatten(0, 1)).unflatten(0, (3, 7))
        assert_close(*outputs)
        assert_close(*(torch.autograd.grad(output.pow(3).sum(), x)[0] for output in outputs))
        commit([ours])
    assert_close(ours.running_mean, theirs.running_mean)
    assert_close(ours.running_variance, theirs.running_var)
    assert_close(ours.eval()(X), theirs.eval()(X.flatten(0, 1)).unflatten(0, (3, 7)))


def test_masked_statistics_are_those_of_the_real_tokens():
    masked, alone = norm_of(masked=True), norm_of()
    tell_real(masked, MASK)
    assert_close(masked(X)[MASK], alone(X[MASK]))
    commit([masked])
    commit([alone])
    assert_close(masked.running_mean, alone.running_mean)
    assert_close(masked.running_variance, alone.running_variance)


@pytest.mark.parametrize("padding", [1, 20])
def test_what_padding_does(padding):
    """With more padding for the same text, batch statistics change; masked ones and those of a layer norm don't."""
    padded = torch.cat([X, torch.zeros(3, padding, 5, dtype=torch.float64)], dim=1)
    mask = (torch.arange(7 + padding) < 7).expand(3, -1)
    counted, masked, layer = norm_of(), norm_of(masked=True), nn.LayerNorm(5).double()
    expected = norm_of()(X)
    tell_real(counted, mask)
    tell_real(masked, mask)
    assert_close(masked(padded)[:, :7], expected)
    assert_close(layer(padded)[:, :7], layer(X))
    difference = (counted(padded)[:, :7] - expected).abs().max()
    assert difference > 0.01 * padding


def test_a_pass_that_is_given_up_leaves_no_trace():
    norm = norm_of()
    norm(X * float("inf"))
    discard([norm])
    norm(X)
    commit([norm])
    other = norm_of()
    other(X)
    commit([other])
    assert torch.equal(norm.running_mean, other.running_mean)
    assert torch.equal(norm.running_variance, other.running_variance)


def test_evaluation_looks_at_no_other_token():
    norm = norm_of()
    norm(X)
    commit([norm])
    norm.eval()
    assert_close(norm(X[:1, :2]), norm(X)[:1, :2], rtol=0, atol=0)
    assert_close(norm.running_mean, 0.1 * X.flatten(0, 1).mean(0))


def test_a_bert_passes_its_mask_on_and_sees_every_position(bert_of, tokens):
    positions = torch.tensor([0, 1, 8])
    other = torch.where(MASK, tokens, (tokens + 1) % 23)
    for kind, same in (("batch_masked", True), ("batch", False)):
        bert = bert_of(norm_kind=kind).train()
        logits = bert(tokens, mask=MASK)
        assert torch.allclose(logits[MASK], bert(other, mask=MASK)[MASK], rtol=0, atol=1e-12) == same
        # the statistics are of all positions, whichever are asked for
        assert_close(bert(tokens, positions, mask=MASK), logits.flatten(0, 1)[positions])


def test_the_norm_of_the_head_would_see_predicted_positions_only(settings_of):
    with pytest.raises(ValidationError, match="norm_kind batch needs head_transform=false"):
        settings_of(norm_kind="batch", head_transform=True)


@pytest.mark.parametrize("sharing", ["attention", "feed_forward", "all"])
def test_shared_layers_have_statistics_of_their_own_and_no_place_for_them(settings_of, sharing):
    with pytest.raises(ValidationError, match="norm_kind batch_masked needs sharing=none"):
        settings_of(norm_kind="batch_masked", sharing=sharing)


@pytest.mark.parametrize("architecture", ["encoder_decoder", "two_stream_encoder"])
def test_models_that_read_what_they_predict_refuse_them(bert_of, architecture):
    with pytest.raises(Mistake, match=r"norm_kind=batch_masked: .* would leak them"):
        bert_of(architecture=architecture, norm_kind="batch_masked")


def test_sentence_order_with_batch_statistics(bert_of, tokens):
    model = bert_of(architecture="sentence_order_encoder", norm_kind="batch_masked").train()
    other = torch.where(MASK, tokens, (tokens + 1) % 23)
    (logits, classes), changed = (
        model(each, torch.tensor([0, 8]), mask=MASK, classes=True) for each in (tokens, other)
    )
    assert_close((logits, classes), changed, rtol=0, atol=1e-12)
    with FlopCounterMode(display=False) as counter:
        sum(each.sum() for each in model(tokens, torch.tensor([0, 8]), mask=MASK, classes=True)).backward()
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(7, 2 / 21) * 21, rel=1e-12)
