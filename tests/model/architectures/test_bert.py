from __future__ import annotations

import itertools

import pytest
import torch
from omegaconf import OmegaConf
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from experiments.failures.failure import Mistake
from experiments.model.architectures import encoder
from experiments.record.result_numbers import PARTS
from experiments.settings.model import Model
from experiments.settings.position import POSITION_KINDS

NORMS = ["post", "pre", "sandwich", "deep"]
NORM_KINDS = ["layer", "layer_no_bias", "rms", "batch", "batch_masked"]
POSITIONS = tuple(POSITION_KINDS)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("tied", [True, False])
def test_positions_give_the_gathered_logits(bert_of, tokens, norm, tied):
    bert = bert_of(norm=norm, tied=tied)
    positions = torch.tensor([20, 0, 7, 7, 13])
    assert_close(bert(tokens, positions), bert(tokens).flatten(0, 1)[positions], rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("position", POSITIONS)
def test_padding_does_not_leak(bert_of, tokens, norm, position):
    bert = bert_of(norm=norm, position=position, token_types=2)
    mask = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    other = torch.where(mask, tokens, (tokens + 1) % 23)
    token_types = torch.randint(2, tokens.shape)
    logits = bert(tokens, mask=mask, token_types=token_types)
    changed = bert(other, mask=mask, token_types=torch.where(mask, token_types, 1 - token_types))
    assert_close(logits[mask], changed[mask], rtol=0, atol=1e-12)
    assert not torch.allclose(logits[mask], bert(tokens, token_types=token_types)[mask])
    # a sequence without its padding, in a batch of its own, gives the same
    assert_close(logits[1:2, :4], bert(tokens[1:2, :4], token_types=token_types[1:2, :4]), rtol=0, atol=1e-12)


def test_a_mask_without_padding_changes_nothing(bert_of, tokens):
    bert = bert_of()
    assert_close(bert(tokens, mask=torch.ones_like(tokens, dtype=torch.bool)), bert(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", POSITIONS)
def test_which_positions_depend_on_the_offset_only(bert_of, tokens, position):
    bert = bert_of(position=position)
    shifted = torch.cat((torch.zeros(3, 4, dtype=torch.int64), tokens), dim=1)
    mask = (torch.arange(11) >= 4).expand(3, 11)
    same = torch.allclose(bert(shifted, mask=mask)[:, 4:], bert(tokens), rtol=0, atol=1e-9)
    assert same == (position in {"rotary", "relative", "alibi", "none"})


@pytest.mark.parametrize("position", POSITIONS)
def test_order_matters_where_there_are_positions(bert_of, tokens, position):
    bert = bert_of(position=position)
    same = torch.allclose(bert(tokens.flip(1)).flip(1), bert(tokens), rtol=0, atol=1e-9)
    # a distance has no direction
    assert same == (position in {"alibi", "none"})
    swapped = tokens[:, [2, 1, 0, 3, 4, 5, 6]]
    same = torch.allclose(bert(swapped)[:, 3:], bert(tokens)[:, 3:], rtol=0, atol=1e-9)
    assert same == (position == "none")


def test_norm_placements_differ(bert_of, tokens):
    logits = [bert_of(norm=norm)(tokens) for norm in NORMS]
    for i, j in itertools.combinations(range(len(NORMS)), 2):
        assert not torch.allclose(logits[i], logits[j])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("norm_kind", NORM_KINDS)
@pytest.mark.parametrize("position", ["learned", "relative"])
def test_every_parameter_gets_a_finite_gradient(bert_of, tokens, norm, norm_kind, position):
    bert = bert_of(norm=norm, norm_kind=norm_kind, position=position, token_types=2, tied=False)
    bert(tokens, torch.tensor([2, 9]), token_types=torch.randint(2, tokens.shape)).square().sum().backward()
    for name, parameter in bert.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name.endswith("key.bias"), name


def test_dropout_acts_in_training_only_and_follows_the_rng(bert_of, tokens):
    bert = bert_of(dropout=0.5)
    assert_close(bert(tokens), bert_of()(tokens), rtol=0, atol=0)
    bert.train()
    logits = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        logits.append(bert(tokens))
    assert_close(logits[0], logits[1], rtol=0, atol=0)
    assert not torch.allclose(logits[0], logits[2])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("norm_kind", NORM_KINDS)
def test_bf16_autocast_is_near_float32(bert_of, tokens, norm_kind):
    bert = bert_of(position="relative", norm="sandwich", norm_kind=norm_kind).float()
    with torch.autocast("cpu", torch.bfloat16):
        logits = bert(tokens, torch.tensor([1, 5]))
    assert_close(logits.float(), bert(tokens, torch.tensor([1, 5])), rtol=0.1, atol=0.1)


def test_mistakes_are_named(bert_of, tokens):
    for position in ("learned", "sinusoidal"):
        with pytest.raises(Mistake, match=r"21 tokens.*model\.length=16"):
            bert_of(position=position)(tokens.reshape(1, 21))
    assert bert_of(position="rotary")(tokens.reshape(1, 21)).shape == (1, 21, 23)
    with pytest.raises(Mistake, match=r"model\.token_types=0"):
        bert_of()(tokens, token_types=tokens)
    with pytest.raises(ValueError, match=r"relative_buckets 9"):
        bert_of(position="relative", relative_buckets=9)
    with pytest.raises(ValueError, match=r"relative_distance 2"):
        bert_of(position="relative", relative_distance=2)


def test_kernels_are_those_that_ran(bert_of, tokens):
    bert = bert_of()
    assert bert.kernels() == []
    bert(tokens)
    assert bert.kernels() == ["reference"]


def test_bert_base_has_the_known_number_of_parameters(settings_of, variant_of):
    model = settings_of(
        hidden_size=768,
        intermediate_size=3072,
        layers=12,
        length=512,
        norm="post",
        position="learned",
        token_types=2,
        head_transform=True,
    )
    variant = variant_of(model, "multi_head", heads=12, key_size=64, value_size=64)
    with torch.device("meta"):
        bert = encoder.Architecture(model, variant, 30522)
    assert bert.parameter_counts() == {
        "embedding": (30522 + 512 + 2) * 768,
        "attention": 12 * 4 * (768 * 768 + 768),
        "feed_forward": 12 * (2 * 768 * 3072 + 3072 + 768),
        "norm": 26 * 2 * 768,
        "output": 768 * 768 + 768 + 30522,
        "total": 109_514_298,
    }


@pytest.mark.parametrize(
    "changes", [{}, {"tied": False, "position": "relative"}, {"norm": "sandwich", "head_transform": True}]
)
def test_parameter_counts_are_complete(bert_of, changes):
    bert = bert_of("talking_heads", **changes)
    counts = bert.parameter_counts()
    assert counts.keys() == {*PARTS}
    assert counts["total"] == sum(parameter.numel() for parameter in bert.parameters())
    assert counts["attention"] == sum(layer.attention.cost(7, 7).parameters for layer in bert.encoder.layers)
    assert bert_of(tied=False).parameter_counts()["output"] - bert_of().parameter_counts()["output"] == 23 * 12


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads"])
@pytest.mark.parametrize(
    ("sizes", "predicted"),
    [
        ({}, 4),
        ({"layers": 1, "tied": False, "key_size": 9}, 1),
        ({"heads": 5, "value_size": 2, "position": "relative"}, 21),
        ({"head_transform": True}, 4),
    ],
)
def test_flops_are_those_that_torch_counts(bert_of, tokens, variant, sizes, predicted):
    bert = bert_of(variant, **sizes)
    with FlopCounterMode(display=False) as counter:
        bert(tokens, torch.arange(predicted)).sum().backward()
    expected = bert.flops_per_token(length=7, predicted_share=predicted / 21) * 21
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-12)


def test_the_yaml_has_the_fields_of_the_settings_in_their_order(request):
    keys = OmegaConf.load(request.config.rootpath / "conf" / "model" / "bert.yaml").keys()
    assert list(keys) == list(Model.model_fields)


def test_the_values_of_the_first_layer_reach_every_other(bert_of, tokens):
    bert = bert_of("value_residual", layers=3)
    first, second, third = (layer.attention for layer in bert.layers)
    for later in (second, third):
        later.balance.weight.data.copy_(torch.tensor([1.0, 0.0]))
    logits = bert(tokens)
    for later in (second, third):
        torch.nn.init.zeros_(later.value.weight)
    assert_close(bert(tokens), logits)
    torch.nn.init.zeros_(first.value.weight)
    assert not torch.allclose(bert(tokens), logits)
