from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from experiments.model.norm import Residual, build_norm

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
    ],
)
def test_placements(settings_of, norm, formula):
    def sublayer(x):
        return 3 * x.roll(1, -1) + x.square()

    assert_close(Residual(settings_of(norm=norm))(X, sublayer), formula(X, sublayer))


@pytest.mark.parametrize("norm", ["post", "pre", "sandwich"])
def test_the_encoder_ends_with_one_norm(bert_of, tokens, norm):
    hidden = bert_of(norm=norm).encoder(bert_of(norm=norm).embedding(tokens))
    assert_close(hidden, normed(hidden))
