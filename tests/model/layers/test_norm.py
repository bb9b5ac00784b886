from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from experiments.model.layers.norm import Residual, build_norm, deep_gains

X = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0))


def test_kinds(settings_of):
    mean, variance = X.mean(-1, keepdim=True), X.var(-1, unbiased=False, keepdim=True)
    layer = build_norm(settings_of(norm_kind="layer", norm_epsilon=1e-3))
    no_bias = build_norm(settings_of(norm_kind="layer_no_bias", norm_epsilon=1e-3))
    rms = build_norm(settings_of(norm_kind="rms", norm_epsilon=1e-3))
    assert_close(layer(X), (X - mean) / (variance + 1e-3).sqrt())
    assert_close(no_bias(X), layer(X))
    assert_close(rms(X), X / (X.square().mean(-1, keepdim=True) + 1e-3).sqrt())
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert (
        [name for name, _ in no_bias.named_parameters()] == [name for name, _ in rms.named_parameters()] == ["weight"]
    )


def normed(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (12,), eps=1e-12)


@pytest.mark.parametrize(
    ("norm", "formula"),
    [
        ("post", lambda x, f: normed(x + f(x))),
        ("pre", lambda x, f: x + f(normed(x))),
        ("sandwich", lambda x, f: x + normed(f(normed(x)))),
        ("deep", lambda x, f: normed(4**0.25 * x + f(x))),  # of two layers
    ],
)
def test_placements(settings_of, norm, formula):
    def sublayer(x):
        return 3 * x.roll(1, -1) + x.square()

    assert_close(Residual(settings_of(norm=norm))(X, sublayer), formula(X, sublayer))


@pytest.mark.parametrize("norm", ["post", "pre", "sandwich", "deep"])
def test_the_encoder_ends_with_one_norm(bert_of, tokens, norm):
    hidden = bert_of(norm=norm).encoder(bert_of(norm=norm).embedding(tokens))
    assert_close(hidden, normed(hidden))


@pytest.mark.parametrize(("layers", "alpha", "beta"), [(2, 2**0.5, 0.5), (8, 2.0, 8**-0.5), (32, 8**0.5, 0.25)])
def test_deep_gains_by_hand(layers, alpha, beta):
    gains = deep_gains(layers)
    assert gains == pytest.approx((alpha, beta))
    # the bound on what an update changes is the same at every depth
    assert layers * 2 * gains.beta**2 / gains.alpha**2 == pytest.approx(0.5)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("variant", ["multi_head", "talking_heads", "additive"])
def test_deep_starts_from_post_with_value_output_and_feed_forward_scaled(bert_of, variant, gated):
    post, deep = (bert_of(variant, norm=norm, gated=gated).state_dict() for norm in ("post", "deep"))
    assert post.keys() == deep.keys()
    scaled = {name for name, value in deep.items() if not torch.equal(value, post[name])}
    maps = ("attention.value", "attention.output", "feed_forward.inner", "feed_forward.outer")
    assert scaled == {f"encoder.layers.{layer}.{name}.weight" for layer in (0, 1) for name in maps}
    for name in scaled:
        assert_close(deep[name], deep_gains(2).beta * post[name])


def test_deep_starts_a_branch_of_one_map_as_small_as_one_of_two(bert_of):
    """The values of general bilinear attention are the memory itself."""
    post, deep = (bert_of("general_bilinear", norm=norm).state_dict() for norm in ("post", "deep"))
    name = "encoder.layers.1.attention.output.weight"
    assert_close(deep[name], deep_gains(2).beta ** 2 * post[name])


def test_deep_scales_what_layers_share_once(bert_of):
    shared, alone = bert_of(norm="deep", sharing="all").state_dict(), bert_of(norm="deep").state_dict()
    for name in ("attention.value", "feed_forward.outer"):
        assert torch.equal(*(state[f"encoder.layers.0.{name}.weight"] for state in (shared, alone)))
