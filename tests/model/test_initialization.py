from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from experiments.config.groups import options
from experiments.model.build import build
from experiments.model.initialization import initialize, path_seed
from tests.model.conftest import variant_group


def assert_shared_equal(first: nn.Module, second: nn.Module) -> int:
    second_parameters = dict(second.named_parameters())
    shared = [(name, value) for name, value in first.named_parameters() if name in second_parameters]
    for name, value in shared:
        assert torch.equal(value, second_parameters[name]), name
    return len(shared)


@pytest.mark.parametrize("variant", options("variant"))
def test_shared_weights_start_equal_in_every_variant(bert_of, variant):
    """A weight of the same name and shape is shared, as are all weights outside of the attention."""
    plain, other = dict(bert_of("multi_head").named_parameters()), dict(bert_of(variant).named_parameters())
    shared = {name for name in plain.keys() & other.keys() if plain[name].shape == other[name].shape}
    assert {name for name in plain if ".attention." not in name} <= shared
    assert [name for name in sorted(shared) if not torch.equal(plain[name], other[name])] == []


def test_talking_heads_have_all_weights_of_multi_head(bert_of):
    multi_head, talking_heads = bert_of("multi_head"), bert_of("talking_heads")
    assert assert_shared_equal(multi_head, talking_heads) == len(list(multi_head.parameters()))
    assert len(list(talking_heads.parameters())) > len(list(multi_head.parameters()))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 3},
        {"norm": "sandwich"},
        {"token_types": 2, "position": "learned"},
        {"tied": False},
        {"head_transform": True},
        {"linear_bias": False},
    ],
)
def test_adding_or_removing_modules_disturbs_no_other(bert_of, changes):
    base = bert_of()
    assert assert_shared_equal(base, bert_of(**changes)) >= len(list(base.parameters())) - 12


def test_values_follow_the_seed_and_the_path(bert_of):
    first, again, other = bert_of(seed=1), bert_of(seed=1), bert_of(seed=2)
    assert_shared_equal(first, again)
    assert not torch.equal(first.embedding.token.weight, other.embedding.token.weight)
    layers = first.encoder.layers
    assert not torch.equal(layers[0].feed_forward.inner.weight, layers[1].feed_forward.inner.weight)
    assert not torch.equal(layers[0].attention.query.weight, layers[0].attention.key.weight)


def test_the_global_rng_is_left_alone(bert_of):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = bert_of()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert_shared_equal(first, bert_of())


def test_the_seed_of_a_path_never_changes():
    """As a constant, since runs of different versions are compared: the first 8 bytes of sha256("7/encoder")."""
    assert path_seed(7, "encoder") == 245564657650927746


def test_values():
    linear, embedding, norm = nn.Linear(200, 100), nn.Embedding(100, 200), nn.LayerNorm(7)
    nn.init.constant_(norm.weight, 5)
    initialize(nn.ModuleList([linear, embedding, norm]), seed=0, std=0.02)
    for weight in (linear.weight, embedding.weight):
        assert weight.mean().abs() < 6 * 0.02 / 20000**0.5
        assert weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert not linear.bias.any()
    assert (norm.weight == 1).all() and not norm.bias.any()


def test_other_modules_reset_themselves_and_their_children_come_after():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.empty(3))
            self.linear = nn.Linear(3, 3)

        def reset_parameters(self):
            nn.init.uniform_(self.scale)
            nn.init.constant_(self.linear.weight, 7)

    first, second = Scale(), Scale()
    initialize(first, seed=0, std=1.0)
    initialize(nn.ModuleDict({"a": nn.Linear(2, 2), "b": second}), seed=0, std=1.0)
    assert not torch.equal(first.scale, second.scale)
    initialize(second, seed=0, std=1.0)
    assert torch.equal(first.scale, second.scale)
    assert not (first.linear.weight == 7).any()


def test_a_module_that_cannot_be_reset_is_refused():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    with pytest.raises(ValueError, match=r"Bare\) owns parameters"):
        initialize(nn.ModuleList([nn.Linear(1, 1), Bare()]), seed=0, std=1.0)


@pytest.mark.parametrize("variant", [name for name in options("variant") if "scaled" in variant_group(name)])
@pytest.mark.parametrize("sharing", ["none", "all"])
def test_by_size_unscaled_logits_start_as_scaled_ones(settings_of, variant_of, tokens, variant, sharing):
    """T5's start: the factor is in the query maps."""
    model = settings_of(initial_std=None, sharing=sharing)
    group = variant_of(model, variant, 3, 5, 4)
    scaled, unscaled = (build("encoder", model, group | {"scaled": each}, 23, 0).double() for each in (True, False))
    # the starts are drawn, and multiplied, in float32
    assert_close(unscaled(tokens), scaled(tokens), rtol=1e-4, atol=1e-4)
    # a given deviation is that of every map
    given = settings_of()
    scaled, unscaled = (build("encoder", given, group | {"scaled": each}, 23, 0) for each in (True, False))
    assert assert_shared_equal(scaled, unscaled)


@pytest.mark.parametrize(("norm", "sharing"), [("pre", "none"), ("post", "all")])
def test_the_last_map_of_each_branch_can_start_smaller(settings_of, variant_of, norm, sharing):
    """GPT-2's start: by the square root of the number of branches, two in each layer."""
    model = settings_of(norm=norm, sharing=sharing)
    group = variant_of(model, "multi_head", 3, 5, 4)
    plain, scaled = (
        dict(build("encoder", model.model_copy(update={"branches_scaled": each}), group, 23, 0).named_parameters())
        for each in (False, True)
    )
    last = {name for name in plain if name.endswith(("attention.output.weight", "feed_forward.outer.weight"))}
    assert len(last) == 2 * (1 if sharing == "all" else model.layers)
    for name, start in plain.items():
        assert_close(scaled[name], start * ((2 * model.layers) ** -0.5 if name in last else 1.0))


def test_a_relative_bias_starts_small(settings_of, variant_of):
    for std, expected in ((None, 12**-0.5), (0.3, 0.3)):
        model = settings_of(position="relative", initial_std=std, relative_buckets=1000, relative_distance=1000)
        start = build("encoder", model, variant_of(model, "multi_head", 3, 5, 4), 23, 0).get_parameter(
            "relative.table.weight"
        )
        assert float(start.detach().std()) == pytest.approx(expected, rel=0.1)
