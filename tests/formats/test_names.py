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


@pytest.mark.parametrize(("state", "name"), [("ours", "layers.0.gate.weight"), ("theirs", "h.0.mlp.weight")])
def test_an_unknown_weight_is_named(state, name):
    translate = NAMES.to_theirs if state == "ours" else NAMES.to_ours
    with pytest.raises(Mistake, match=f"{name} is not a weight of a model"):
        translate({name: torch.ones(1)})
