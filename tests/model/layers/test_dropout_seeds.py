"""The seeds of attention dropout: one for each use of an attention layer, filled in place."""

from __future__ import annotations

import pytest
import torch

from experiments.config.groups import options
from experiments.model.layers.dropout_seeds import dropout_seeds, reseed


def seeds(model) -> list[torch.Tensor]:
    return [each for layer in model.layers for each in layer.dropout_seeds]


@pytest.mark.parametrize("changes", [{}, {"sharing": "all"}, {"architecture": "causal_decoder"}])
def test_every_layer_has_a_seed_of_its_own_also_where_layers_share_their_attention(bert_of, changes):
    model = bert_of(layers=3, **changes)
    tensors = seeds(model)
    reseed(dropout_seeds(model), 1)
    first = [int(each) for each in tensors]
    assert len(set(first)) == 3
    reseed(dropout_seeds(model), 2)
    assert not set(first) & {int(each) for each in tensors}
    assert all(one is other for one, other in zip(seeds(model), tensors, strict=True))


@pytest.mark.parametrize("variant", options("variant"))
def test_the_seed_alone_decides_which_weights_are_dropped(bert_of, tokens, variant):
    model = bert_of(variant, attention_dropout=0.5).train()
    state, logits = torch.get_rng_state(), []
    for seed in (1, 2, 1):
        reseed(dropout_seeds(model), seed)
        logits.append(model(tokens))
    assert torch.equal(logits[0], logits[2]) and not torch.allclose(logits[0], logits[1])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_new_seed_is_no_reason_to_compile_again(bert_of, tokens):
    model, graphs = bert_of(attention_dropout=0.5).train(), []

    def count(graph, _):
        graphs.append(graph)
        return graph

    layer = model.layers[0]
    call, x = torch.compile(layer.forward, backend=count), torch.randn(2, 5, 12, dtype=torch.float64)
    made = []
    for seed in range(4):
        reseed(dropout_seeds(model), seed)
        torch.testing.assert_close(call(x), layer(x))
        made.append(len(graphs))
    assert made == 4 * made[:1]
