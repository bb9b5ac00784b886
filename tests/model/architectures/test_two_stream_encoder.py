from __future__ import annotations

import itertools
from importlib import import_module

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from attention import mechanisms
from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.objectives.loss import loss

ORDER = torch.tensor([[0, 3, 0, 1, 2, 0, 4], [1, 0, 2, 0, 0, 3, 0], [0, 0, 0, 0, 0, 0, 1]])
POSITIONS = ["learned", "sinusoidal", "rotary", "relative"]
# mechanisms that look at the places of the memory
PLACED = [name for name in mechanisms() if import_module(f"attention.{name}").Attention.positional]


@pytest.fixture
def xlnet_of(bert_of):
    return lambda *variant, **changes: bert_of(*variant, architecture="two_stream_encoder", **changes)


@pytest.mark.parametrize("variant", [name for name in options("variant") if name not in PLACED])
@pytest.mark.parametrize("position", POSITIONS)
def test_a_logit_knows_what_comes_before_it_in_the_order_and_nothing_else(xlnet_of, tokens, variant, position):
    """If a token is changed, exactly the predictions of tokens that are later in the order change."""
    model = xlnet_of(variant, position=position)
    logits = model(tokens, order=ORDER)
    for place in range(7):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 23
        differs = (model(changed, order=ORDER) - logits).abs().amax(-1) > 1e-9
        later = ORDER[:, place, None] < ORDER
        predicted = ORDER > 0
        assert torch.equal(differs & predicted, later & predicted)


@pytest.mark.parametrize("variant", PLACED)
def test_attention_that_looks_at_places_is_refused(xlnet_of, variant):
    with pytest.raises(Mistake, match=f"variant={variant}: it attends by positions"):
        xlnet_of(variant)


@pytest.mark.parametrize("position", POSITIONS)
def test_the_losses_are_of_one_distribution(xlnet_of, position):
    """Over all that could stand at the predicted positions the probabilities sum to 1, in any order."""
    model = xlnet_of(position=position)
    pairs = torch.tensor(list(itertools.product(range(23), repeat=2)))
    tokens = torch.stack([torch.full((529,), 3), pairs[:, 0], torch.full((529,), 8), pairs[:, 1]], dim=1)
    for order in ([0, 1, 0, 2], [0, 2, 0, 1]):
        with torch.no_grad():
            logits = model(tokens, order=torch.tensor(order).expand(529, 4))[:, [1, 3]]
        nats = torch.stack([loss(each, pair) for each, pair in zip(logits, pairs, strict=True)])
        assert_close(nats.neg().exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_the_streams_one_position_at_a_time(xlnet_of, tokens):
    """The same from its definition: a layer's content and query, each position with the content that it knows."""
    model = xlnet_of(position="learned", layers=2)
    order = ORDER[:1]
    embedding = model.embedding
    h = embedding(tokens[:1])[0]
    g = embedding.place(model.query.weight.expand(1, 7, -1))[0]
    for layer in model.layers:
        streams = []
        for stream, strict in ((h, False), (g, True)):
            rows = []
            for i in range(7):
                seen = [j for j in range(7) if (order[0, j] < order[0, i] if strict else order[0, j] <= order[0, i])]
                x, memory = layer.attention_residual.norm(stream[i]), layer.attention_residual.norm(h[seen])
                attended = layer.attention(x[None, None], memory[None])[0, 0] if seen else layer.attention.output.bias
                y = stream[i] + attended
                rows.append(y + layer.feed_forward(layer.feed_forward_residual.norm(y)))
            streams.append(torch.stack(rows))
        h, g = streams
    expected = model.head(model.encoder.norm(g), embedding.token.weight)
    predicted = order[0] > 0
    assert_close(model(tokens[:1], order=order)[0, predicted], expected[predicted])


@pytest.mark.parametrize("position", POSITIONS)
def test_positions_give_the_gathered_logits(xlnet_of, tokens, position):
    model = xlnet_of(position=position)
    positions = ORDER.flatten().nonzero().flatten()
    assert_close(
        model(tokens, positions, order=ORDER), model(tokens, order=ORDER).flatten(0, 1)[positions], rtol=0, atol=1e-12
    )


def test_without_an_order_it_is_bert_on_the_content(bert_of, xlnet_of, tokens):
    model, bert = xlnet_of(), bert_of()
    assert model.state_dict().keys() - bert.state_dict().keys() == {"query.weight"}
    assert_close(model(tokens), bert(tokens), rtol=0, atol=0)


@pytest.mark.parametrize("position", ["rotary", "relative"])
def test_padding_does_not_leak(xlnet_of, tokens, position):
    model = xlnet_of(position=position)
    mask = torch.arange(7) < torch.tensor([7, 4, 7])[:, None]
    other = torch.where(mask, tokens, (tokens + 1) % 23)
    chosen = mask & (ORDER > 0)
    logits = model(tokens, order=ORDER, mask=mask)
    assert_close(model(other, order=ORDER, mask=mask)[chosen], logits[chosen], rtol=0, atol=1e-12)
    assert not torch.allclose(model(tokens, order=ORDER)[chosen], logits[chosen])


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads"])
@pytest.mark.parametrize("changes", [{}, {"position": "relative"}, {"embedding_size": 5, "sharing": "all"}])
def test_flops_are_those_that_torch_counts(xlnet_of, tokens, variant, changes):
    model = xlnet_of(variant, **changes)
    with FlopCounterMode(display=False) as counter:
        model(tokens, torch.arange(4), order=ORDER).sum().backward()
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(7, 4 / 21) * 21, rel=1e-12)


def test_every_parameter_gets_a_finite_gradient(xlnet_of, tokens):
    model = xlnet_of(position="learned")
    model(tokens, torch.tensor([1, 3, 6]), order=ORDER).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith("key.bias"), name


def test_the_query_of_narrow_embeddings_starts_at_their_scale(xlnet_of):
    full, small = (xlnet_of(hidden_size=768, embedding_size=size) for size in (768, 48))
    assert small.query.weight.std().item() == pytest.approx(4 * full.query.weight.std().item(), rel=0.3)
    assert small.query.weight.std().item() == pytest.approx(small.embedding.token.weight.std().item(), rel=0.3)


def test_without_positions_it_is_refused(xlnet_of):
    with pytest.raises(Mistake, match=r"model\.position=none"):
        xlnet_of(position="none")
