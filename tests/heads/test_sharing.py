"""Layers that share their attention are analysed separately, and removing heads from them is refused."""

from __future__ import annotations

import pytest
import torch

from experiments.failures.failure import Mistake
from experiments.heads.hooks import check_prunable, check_unshared_heads, read_stages
from experiments.heads.measures.equal_start import head_spread, make_heads_equal
from experiments.heads.measures.importance import by_gradient, by_relevance
from experiments.heads.measures.pruning import gates_without, loss_with_gates, remove_heads


@pytest.fixture
def pair(bert_of):
    """(layers of equal parameters, layers that share them)"""
    own, shared = bert_of("talking_heads", layers=3), bert_of("talking_heads", layers=3, sharing="all")
    with torch.no_grad():
        for layer in own.layers[1:]:
            layer.load_state_dict(own.layers[0].state_dict())
    return own, shared


def test_every_layer_has_its_own_maps_and_importance(pair, batch):
    own, shared = (read_stages(model, batch.tokens, "weights", "outputs") for model in pair)
    for expected, seen in zip(own, shared, strict=True):
        assert expected.keys() == seen.keys() == {"weights", "outputs"}
        assert all(torch.equal(expected[stage], seen[stage]) for stage in expected)
    assert not torch.equal(shared[0]["weights"], shared[1]["weights"])
    for score in (by_gradient, by_relevance):
        expected, found = (score(model, [batch]) for model in pair)
        assert all(torch.allclose(*each) for each in zip(expected, found, strict=True))


def test_a_head_is_gated_in_one_layer(pair, batch):
    losses = [
        [loss_with_gates(model, [batch], gates_without(model, [(layer, 1)])) for layer in range(3)] for model in pair
    ]
    assert losses[0] == losses[1] and len(set(losses[0])) == 3


def test_taking_a_head_out_is_refused(pair):
    with pytest.raises(Mistake, match=r"share their attention \(model\.sharing\)"):
        remove_heads(pair[1], [(1, 0)])
    check_unshared_heads(pair[0], "--export")


def test_a_variant_whose_heads_stay_is_refused(pair, monkeypatch):
    check_prunable(pair[0], "--equal")
    monkeypatch.setattr(type(pair[0].layers[0].attention), "prunable", False)
    for check in (check_prunable, check_unshared_heads):
        with pytest.raises(Mistake, match="--equal: heads of this variant can be neither removed nor copied"):
            check(pair[0], "--equal")


def test_heads_made_equal_are_equal_in_every_layer(pair, batch):
    make_heads_equal(pair[1])
    assert head_spread(pair[1], batch.tokens) < 1e-12
