"""A variant that the user has added is tried before it trains; the project's own would pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.compose import compose
from experiments.failures.failure import Mistake
from experiments.model.layers import check_added as checks
from experiments.settings.plugins import use_plugins
from tests.fixtures.plugins import write_files

VARIANTS = sorted(path.stem for path in (Path(__file__).parents[3] / "conf/variant").glob("*.yaml"))
CODE = """
import torch
from torch import nn

from attention import multi_head


class Attention(multi_head.Attention):
    prunable = {prunable}

    def __init__(self, hidden_size: int, heads: int, dropout: float = 0.0, backend: str = "auto") -> None:
        super().__init__(hidden_size, heads, dropout=dropout, backend=backend)
        self.gate = nn.Linear(hidden_size, heads * 4)
        {own}

    def combine(self, heads):
        return super().combine({combined})

    def cost(self, queries, memory):
        from attention.layers.cost import Cost, linear
        return super().cost(queries, memory){cost}

    def attend(self, x, memory, query, key, value, options):
        {first}
        gate = {gate}
        return super().attend(x, memory, query, key, value, {options}) * gate.unflatten(-1, (-1, 4))
"""
YAML = """
name: gates
hidden_size: ${hidden_size}
heads: ${heads}
dropout: ${model.attention_dropout}
backend: ${backend}
"""
SOUND = {
    "prunable": "False",
    "own": "",
    "combined": "heads",
    "cost": " + linear(queries, self.gate)",
    "first": "",
    "gate": "self.gate(x)",
    "options": "options",
}
# what a parameter of the layer's own adds, without the method that draws its starting values
FACTOR = {"gate": "self.gate(x) * self.factor", "cost": " + linear(queries, self.gate) + Cost(parameters=1)"}


def check(folder: Path, **changes: str) -> None:
    files = {"attention/gates.py": CODE.format(**SOUND | changes), "conf/variant/gates.yaml": YAML}
    use_plugins(write_files(folder / "mine", files))
    checks.check_added(compose(["variant=gates", "hidden_size=12", "heads=3"]).variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_of_the_project_would_pass(variant, monkeypatch):
    monkeypatch.setattr(checks, "module_file", lambda module: Path(module))
    checks.check_added(compose([f"variant={variant}", "hidden_size=12", "heads=2", "key_size=6"]).variant)


def test_a_sound_variant_passes(tmp_path, unplugged):
    check(tmp_path)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"options": "options._replace(causal=False)"}, "causal: a position sees later ones"),
        ({"options": "options._replace(mask=None)"}, "mask: a position sees those that the mask hides"),
        ({"options": "options._replace(bias=None)"}, "bias: does not change the output"),
        ({"gate": "self.gate(x.mean(1, keepdim=True))"}, "causal: a position sees later ones"),
        ({"gate": "torch.ones_like(self.gate(x))"}, "gate.weight: is a parameter that has no part in the output"),
        ({"cost": ""}, "cost: gives 624 parameters; the layer has 780"),
        ({"cost": " + Cost(156)"}, "cost: gives 4,320 multiplications for 6 positions; the layer makes at least 5,184"),
        (
            FACTOR | {"own": "self.factor = nn.Parameter(torch.ones(1))"},
            "Attention: owns parameters but has no reset_parameters()",
        ),
        (
            FACTOR | {"own": "self.factor = nn.Parameter(torch.ones(1)); self.reset_parameters = lambda: None"},
            "factor: gets no starting value from reset_parameters()",
        ),
        ({"first": "x.mul_(2)"}, "x: is changed in place"),
        ({"gate": "self.gate(x) + torch.rand(1)"}, "output: two passes in evaluation differ"),
        ({"first": "self.gate.bias.data += 1"}, "output: two passes in evaluation differ"),
        ({"gate": "self.gate(x.roll(1, 0))"}, "the output of an example depends on the other examples of the batch"),
        ({"gate": "self.gate(x) * torch.arange(6)[:, None]"}, "positional: is False"),
        (
            {"gate": "self.gate(x) / (1 if options.mask is None else options.mask.any(-1).all(1)[..., None])"},
            "mask: a query that may attend to nothing gives what is not finite",
        ),
        (
            {"prunable": "True\n\n    def keep_heads(self, heads):\n        raise NotImplementedError\n"},
            "keep_heads: is missing",
        ),
        ({"prunable": "True"}, "keep_heads: leaves out what belongs to a head"),
        ({"combined": "torch.dropout(heads, 0.5, self.training)"}, "two passes with the same dropout_seed differ"),
        (
            {"options": "options) if self.hook is None else self.run_kernel(query, key, value, options, None"},
            "stages: ",
        ),
    ],
)
def test_what_an_added_variant_does_wrong_is_named_with_its_file(changes, fault, tmp_path, unplugged):
    with pytest.raises(Mistake) as raised:
        check(tmp_path, **changes)
    assert "mine/attention/gates.py: " in str(raised.value) and fault in str(raised.value)


def test_a_variant_may_refuse_an_option(tmp_path, unplugged):
    refusal = "(_ for _ in ()).throw(ValueError('causal: this variant has no order')) if options.causal else options"
    check(tmp_path, options=refusal)


def test_outputs_that_are_not_finite_are_left_to_the_run(tmp_path, unplugged):
    check(tmp_path, gate="self.gate(x) / 0")
