from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.model.architectures import encoder_decoder
from experiments.model.build import build
from experiments.model.layers.position import RelativeBias
from experiments.settings.position import POSITION_KINDS

VOCABULARY = 23
POSITIONS = tuple(POSITION_KINDS)


@functools.cache
def composed_variant(variant: str, hidden_size: int, linear_bias: bool) -> dict[str, object]:
    overrides = [f"variant={variant}", f"hidden_size={hidden_size}", "heads=3", "backend=reference"]
    return compose([*overrides, f"model.linear_bias={linear_bias}"]).variant


@pytest.fixture
def model_of(settings_of):
    def make(variant="multi_head", seed=0, **changes) -> encoder_decoder.Architecture:
        model = settings_of(**changes)
        resolved = composed_variant(variant, model.hidden_size, model.linear_bias)
        return build("encoder_decoder", model, copy.deepcopy(resolved), VOCABULARY, seed).double().eval()

    return make


@pytest.fixture
def decoder_tokens() -> torch.Tensor:
    """[3, 5]"""
    return torch.randint(VOCABULARY, (3, 5), generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize("norm", ["post", "pre", "sandwich"])
@pytest.mark.parametrize("tied", [True, False])
def test_positions_give_the_gathered_logits(model_of, tokens, decoder_tokens, norm, tied):
    model = model_of(norm=norm, tied=tied)
    positions = torch.tensor([14, 0, 7, 7, 13])
    every = model(tokens, decoder_tokens)
    assert every.shape == (3, 5, VOCABULARY)
    assert_close(model(tokens, decoder_tokens, positions), every.flatten(0, 1)[positions], rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", options("variant"))
def test_a_decoder_token_changes_no_logit_before_it(model_of, tokens, decoder_tokens, variant):
    model = model_of(variant)
    before = model(tokens, decoder_tokens)
    for position in range(5):
        changed = decoder_tokens.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        after = model(tokens, changed)
        assert_close(after[:, :position], before[:, :position], rtol=0, atol=1e-12)
        assert (after[:, position:] - before[:, position:]).abs().amax(-1).min() > 1e-6, "all others see it"


@pytest.mark.parametrize("position", POSITIONS)
def test_a_decoder_token_changes_no_logit_before_it_whatever_the_positions(model_of, tokens, decoder_tokens, position):
    model = model_of(position=position)
    changed = decoder_tokens.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    difference = (model(tokens, changed) - model(tokens, decoder_tokens)).abs().amax(-1)
    assert difference[:, :3].max() < 1e-12 and difference[:, 3:].min() > 1e-6


@pytest.mark.parametrize("variant", options("variant"))
def test_padding_of_the_encoder_changes_nothing(model_of, tokens, decoder_tokens, variant):
    model = model_of(variant)
    mask = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    logits = model(tokens, decoder_tokens, mask=mask)
    other = torch.where(mask, tokens, (tokens + 1) % VOCABULARY)
    assert_close(model(other, decoder_tokens, mask=mask), logits, rtol=0, atol=1e-12)
    # nor is it there at all
    for row, length in enumerate([7, 4, 1]):
        alone = model(tokens[row : row + 1, :length], decoder_tokens[row : row + 1])
        assert_close(alone[0], logits[row], rtol=0, atol=1e-10)
    seen = (model(other, decoder_tokens) - model(tokens, decoder_tokens)).abs().amax((1, 2))
    assert seen[0] == 0 and (seen[1:] > 1e-6).all(), "what is not masked is seen"


@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "additive", "general_bilinear"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gated": True, "tied": False},
        {"layers": 1, "position": "relative", "linear_bias": False},
        {"head_transform": True, "head_bias": False},
    ],
)
def test_flops_and_parameters_are_those_that_torch_counts(model_of, tokens, decoder_tokens, variant, changes):
    model = model_of(variant, **changes)
    counts = model.parameter_counts()
    assert counts["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert counts["attention"] == sum(attention.cost(1, 1).parameters for attention in model.attentions)
    assert len(model.attentions) == 3 * len(model.encoder.layers)
    with FlopCounterMode(display=False) as counter:
        model(tokens, decoder_tokens, torch.arange(15)).sum().backward()
    if variant == "additive":
        return  # tanh is computed again in the backward, which is no part of the formula
    assert counter.get_total_flops() == pytest.approx(model.flops_per_token(7, 5 / 12) * 3 * 12, rel=1e-12)


def test_the_kernels_of_all_attentions_are_named(model_of, tokens, decoder_tokens):
    model = model_of()
    assert model.kernels() == []
    model.decoder.layers[1].cross_attention.backend = "blocked"
    model(tokens, decoder_tokens)
    assert model.kernels() == ["blocked", "reference"]


def test_a_gated_feed_forward_by_hand(model_of):
    feed_forward = model_of(gated=True, activation="relu").encoder.layers[0].feed_forward
    x = torch.randn(4, 12, dtype=torch.float64)
    expected = feed_forward.outer(torch.relu(feed_forward.gate(x)) * feed_forward.inner(x))
    assert_close(feed_forward(x), expected)


def test_a_one_sided_bias_needs_a_larger_distance():
    RelativeBias(8, 4, heads=1, causal=False, std=1.0)
    with pytest.raises(Mistake, match=r"relative_distance=4: must be above 4"):
        RelativeBias(8, 4, heads=1, causal=True, std=1.0)


def test_scaled_output_and_start_by_size(model_of, tokens, decoder_tokens):
    """Embeddings of unit variance, tied: scaled, the logits start with unit variance (T5)."""
    model = model_of(hidden_size=120, initial_std=None, output_scaled=True, norm_kind="rms", embedding_norm=False)
    assert model.embedding.token.weight.std().item() == pytest.approx(1, abs=0.05)
    query = model.encoder.layers[0].attention.query.weight
    assert query.std().item() == pytest.approx(120**-0.5, rel=0.1)
    assert model(tokens, decoder_tokens).std().item() == pytest.approx(1, abs=0.4)


def test_the_last_maps_of_each_side_start_smaller_by_its_own_number_of_branches(model_of):
    """Two in each of the encoder's two layers, three in each of the decoder's."""
    plain, scaled = (dict(model_of(branches_scaled=each).named_parameters()) for each in (False, True))
    ends = ("attention.output.weight", "feed_forward.outer.weight")
    for name, start in plain.items():
        branches = {"encoder": 4, "decoder": 6}[name.split(".")[0]] if name.endswith(ends) else 1
        assert_close(scaled[name], start * branches**-0.5)


def test_the_first_attention_of_either_side_may_have_no_norm(model_of):
    plain, bare = (model_of(norm="pre", first_norm=first).state_dict().keys() for first in (True, False))
    names = {f"{side}.layers.0.attention_residual.norm" for side in ("encoder", "decoder")}
    assert plain - bare == {f"{name}.{parameter}" for name in names for parameter in ("weight", "bias")}


REFUSED = [{"token_types": 2}, {"sharing": "all"}, {"norm": "deep"}]


@pytest.mark.parametrize("changes", REFUSED)
def test_what_an_encoder_decoder_has_not_is_refused(model_of, changes):
    with pytest.raises(Mistake, match=next(iter(changes))):
        model_of(**changes)
