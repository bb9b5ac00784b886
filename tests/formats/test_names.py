from __future__ import annotations

import pytest
import torch

from experiments.failures.failure import Mistake
from experiments.formats.names import Names

NAMES = Names({"h.N.attn.qkv": ("layers.N.query", "layers.N.key", "layers.N.value"), "wte": "token"}, "a model")


def test_a_map_of_several_is_taken_apart_and_put_together_again():
    theirs = {"wte.weight": torch.ones(2, 3)}
    theirs |= {f"h.{layer}.attn.qkv.weight": torch.arange(12.0).view(6, 2) + layer for layer in (0, 11)}
    ours = NAMES.to_ours(theirs)
    assert ours.keys() == {"token.weight"} | {
        f"layers.{n}.{part}.weight" for n in (0, 11) for part in ["query", "key", "value"]
    }
    assert ours["layers.11.key.weight"].tolist() == [[15.0, 16.0], [17.0, 18.0]]
    again = NAMES.to_theirs(ours)
    assert again.keys() == theirs.keys() and all(torch.equal(again[name], theirs[name]) for name in theirs)


def test_a_layer_that_is_named_by_its_number_and_two_names_of_one_map():
    names = Names(
        {"h.0.bias": "shared", "h.N.norm": "layers.N.norm", "h.N.wi": "layers.N.inner", "h.N.wi_1": "layers.N.inner"},
        "a model",
    )
    theirs = {name: torch.ones(1) for name in ("h.0.bias.weight", "h.0.norm.weight", "h.1.norm.weight")}
    ours = names.to_ours(theirs)
    assert list(ours) == ["shared.weight", "layers.0.norm.weight", "layers.1.norm.weight"]
    assert names.to_theirs(ours).keys() == theirs.keys()
    with pytest.raises(Mistake, match=r"h\.1\.bias\.weight is not a weight"):
        names.to_ours({"h.1.bias.weight": torch.ones(1)})
    for name in ("h.3.wi.weight", "h.3.wi_1.weight"):
        (ours,) = names.to_ours({name: torch.ones(1)})
        assert ours == "layers.3.inner.weight"
    assert list(names.to_theirs({ours: torch.ones(1)})) == ["h.3.wi_1.weight"]


@pytest.mark.parametrize(("state", "name"), [("ours", "layers.0.gate.weight"), ("theirs", "h.0.mlp.weight")])
def test_an_unknown_weight_is_named(state, name):
    translate = NAMES.to_theirs if state == "ours" else NAMES.to_ours
    with pytest.raises(Mistake, match=f"{name} is not a weight of a model"):
        translate({name: torch.ones(1)})
