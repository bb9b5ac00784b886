from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from experiments.config.groups import options
from experiments.objectives.loss import loss

POSITIONS = ["learned", "rotary", "relative"]
# each variant with one kind of position, and the plain one and one that mixes heads with all
PAIRS = {(variant, POSITIONS[index % 3]) for index, variant in enumerate(options("variant"))}
PAIRS |= set(itertools.product(["multi_head", "talking_heads"], POSITIONS))


@pytest.mark.parametrize(("variant", "position"), sorted(PAIRS))
def test_no_logit_knows_a_later_token(bert_of, tokens, variant, position):
    """If a token is changed, exactly the logits at it and after it change."""
    model = bert_of(variant, architecture="causal_decoder", position=position)
    logits = model(tokens)
    for place in range(7):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 23
        differs = (model(changed) - logits).abs().amax(-1) > 1e-9
        assert differs[:, place:].all() and not differs[:, :place].any()


def test_the_losses_are_of_one_distribution(bert_of):
    """Over all continuations of a token the probabilities sum to 1: no position is told what it predicts."""
    model = bert_of(architecture="causal_decoder", layers=1)
    sentences = torch.tensor([[3, *rest] for rest in itertools.product(range(23), repeat=2)])
    with torch.no_grad():
        nats = [loss(model(each[None], torch.tensor([0, 1])), each[1:]) for each in sentences]
    assert_close(torch.stack(nats).neg().exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_it_is_bert_but_for_the_mask(bert_of, tokens):
    bert, causal = bert_of(), bert_of(architecture="causal_decoder")
    assert bert.state_dict().keys() == causal.state_dict().keys()
    assert all(torch.equal(*pair) for pair in zip(bert.parameters(), causal.parameters(), strict=True))
    assert_close(causal(tokens[:, :1]), bert(tokens[:, :1]))


def test_flops_are_those_that_torch_counts(bert_of, tokens):
    model = bert_of(architecture="causal_decoder")
    with FlopCounterMode(display=False) as counter:
        model(tokens, torch.arange(18)).sum().backward()
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(7, 18 / 21) * 21, rel=1e-12)


def test_norm_and_bias_are_choices(bert_of, tokens):
    whole, bare = bert_of(), bert_of(embedding_norm=False, head_bias=False)
    assert whole.state_dict().keys() - bare.state_dict().keys() == {
        "embedding.norm.weight", "embedding.norm.bias", "head.bias",
    }  # fmt: skip
    assert not torch.allclose(whole(tokens), bare(tokens))
