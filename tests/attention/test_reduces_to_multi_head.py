"""In some limit a mechanism is multi-head attention: the same weights give the same outputs and gradients.

Each mechanism with such a limit has a function here, with the name of its file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from attention import (
    additive,
    collaborative,
    dynamically_composable,
    gated,
    general_bilinear,
    grouped_query,
    knocking_heads,
    latent,
    linear,
    low_rank_value,
    mechanisms,
    multi_head,
    multi_query,
    multi_token,
    qk_norm,
    sigmoid,
    sinks,
    sliding_window,
    talking_heads,
    value_residual,
)

Pair = tuple[nn.Module, multi_head.Attention]
SHARED: dict[str, Any] = {"linear_bias": True, "dropout": 0.0, "backend": "auto"}
SIZES: dict[str, Any] = {"hidden_size": 12, "memory_size": 10, "heads": 3, "key_size": 5, "value_size": 7} | SHARED


def multi_head_like(limit: nn.Module, **sizes: Any) -> multi_head.Attention:
    """A multi-head layer with those weights of the limit that have the same names."""
    layer = multi_head.Attention(**(SIZES | sizes), scaled=True)
    layer.load_state_dict(limit.state_dict(), strict=False)
    return layer


def additive_limit() -> Pair:
    """v = 0, compared with queries of 0: both give all positions equal weights."""
    limit = additive.Attention(**SIZES)
    for parameter in (limit.comparison.weight, limit.query.weight, limit.query.bias):
        nn.init.zeros_(parameter)
    return limit, multi_head_like(limit)


def collaborative_limit() -> Pair:
    """start=concatenated, compared with queries and keys without bias."""
    limit = collaborative.Attention(**SIZES, start="concatenated")
    layer = multi_head_like(limit)
    nn.init.zeros_(layer.query.bias)
    nn.init.zeros_(layer.key.bias)
    return limit, layer


def dynamically_composable_limit() -> Pair:
    """W_2 = 0 and W_d = 0, so that all maps stay as they are."""
    limit = dynamically_composable.Attention(**SIZES, scaled=True)
    for name, parameter in limit.named_parameters():
        if name.endswith(("second", "gate")):
            nn.init.zeros_(parameter)
    return limit, multi_head_like(limit)


def gated_limit() -> Pair:
    """W = 0, so that every gate is 1/2, compared with an output map half as large."""
    limit = gated.Attention(**SIZES, scaled=True)
    nn.init.zeros_(limit.gate.weight)
    layer = multi_head_like(limit)
    layer.output.weight.data.mul_(0.5)
    return limit, layer


def general_bilinear_limit() -> Pair:
    """The multi-head layer of key and value size D_M whose key and value maps are the identity in each head."""
    limit = general_bilinear.Attention(12, 3, 10, **SHARED)
    layer = multi_head_like(limit, key_size=10, value_size=10)
    for same in (layer.key, layer.value):
        nn.init.zeros_(same.bias)
        same.weight.data.copy_(torch.eye(10).repeat(3, 1))
    return limit, layer


def grouped_query_limit() -> Pair:
    """One group for each head."""
    limit = grouped_query.Attention(**SIZES, groups=3)
    return limit, multi_head_like(limit)


def knocking_heads_limit() -> Pair:
    """The layer with its starting values."""
    limit = knocking_heads.Attention(**SIZES, scaled=True)
    return limit, multi_head_like(limit)


def latent_limit() -> Pair:
    """A latent vector that is the memory, without its norm."""
    limit = latent.Attention(**SIZES, latent_size=10, latent_norm=False)
    nn.init.eye_(limit.latent.weight)
    return limit, multi_head_like(limit)


def linear_limit() -> Pair:
    """Keys that are all the same, so that both give all positions equal weights."""
    limit = linear.Attention(**SIZES)
    nn.init.zeros_(limit.key.weight)
    return limit, multi_head_like(limit)


def low_rank_value_limit() -> Pair:
    """Any layer, with the same parameters."""
    limit = low_rank_value.Attention(**SIZES, scaled=True)
    return limit, multi_head_like(limit)


def multi_query_limit() -> Pair:
    """The multi-head layer whose heads have the same keys and values."""
    limit = multi_query.Attention(**SIZES)
    layer = multi_head.Attention(**SIZES, scaled=True)
    for own, shared in ((layer.key, limit.key), (layer.value, limit.value)):
        own.weight.data.copy_(shared.weight.repeat(3, 1))
        own.bias.data.copy_(shared.bias.repeat(3))
    layer.query.load_state_dict(limit.query.state_dict())
    layer.output.load_state_dict(limit.output.state_dict())
    return limit, layer


def multi_token_limit() -> Pair:
    """The layer as it starts."""
    limit = multi_token.Attention(**SIZES)
    return limit, multi_head_like(limit)


def qk_norm_limit() -> Pair:
    """A large epsilon: the norms divide by almost the same number, sqrt(epsilon), and the gains undo this."""
    limit = qk_norm.Attention(**SIZES, epsilon=1e20)
    nn.init.constant_(limit.query_norm.weight, 1e10)
    nn.init.constant_(limit.key_norm.weight, 1e10)
    return limit, multi_head_like(limit)


def sinks_limit() -> Pair:
    """Sinks with a weight of 0."""
    limit = sinks.Attention(**SIZES)
    nn.init.constant_(limit.sink.logit, -1e4)
    return limit, multi_head_like(limit)


def sliding_window_limit() -> Pair:
    """Attention to another sequence, which is attended to as a whole."""
    limit = sliding_window.Attention(**SIZES, window=1)
    return limit, multi_head_like(limit)


def talking_heads_limit() -> Pair:
    """P_l = P_w = I."""
    sizes = {key: value for key, value in SIZES.items() if key != "heads"}
    mixing: dict[str, Any] = {"static": ["logits", "weights"], "dynamic": [], "start": "identity", "scaled": True}
    limit = talking_heads.Attention(**sizes, **mixing, key_heads=3, softmax_heads=3, value_heads=3)
    return limit, multi_head_like(limit)


def value_residual_limit() -> Pair:
    """Only the layer's own values."""
    limit = value_residual.Attention(**SIZES)
    limit.balance.weight.data.copy_(torch.tensor([0.0, 1.0]))
    return limit, multi_head_like(limit)


LIMITS = {name.removesuffix("_limit"): each for name, each in globals().items() if name.endswith("_limit")}


def test_every_limit_is_that_of_a_mechanism():
    assert LIMITS.keys() <= {*mechanisms()} and len(LIMITS) >= 17


@pytest.mark.parametrize(("batch", "length"), [(2, 1), (1, 7), (2, 63)])
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_the_limit_is_multi_head(limit: Callable[[], Pair], batch: int, length: int):
    torch.manual_seed(0)
    layers = [layer.double().eval() for layer in limit()]
    x = torch.randn(batch, length, 12).double().requires_grad_()
    memory = torch.randn(batch, length + 2, 10).double().requires_grad_()
    mask = torch.rand(batch, 1, length, length + 2) < 0.8
    outputs = [layer(x, memory, mask=mask) for layer in layers]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*(torch.autograd.grad(output.square().sum(), (x, memory)) for output in outputs))


def test_a_window_of_the_length_is_multi_head_to_itself():
    torch.manual_seed(0)
    limit = sliding_window.Attention(12, 3, window=6)
    layer, x = multi_head.Attention(12, 3), torch.randn(2, 7, 12)
    layer.load_state_dict(limit.state_dict())
    torch.testing.assert_close(limit(x), layer(x))
    longer = torch.cat([x, x[:, :1]], dim=1)
    assert not torch.allclose(limit(longer), layer(longer))


def test_softmax_off_by_one_of_large_logits_is_multi_head():
    torch.manual_seed(0)
    limit = sinks.Attention(**SIZES, learned=False)
    layer, x, memory = multi_head_like(limit), torch.randn(1, 7, 12), torch.randn(1, 5, 10)
    large = torch.full((1, 1, 1, 1), 50.0)
    torch.testing.assert_close(limit(x, memory, bias=large), layer(x, memory))
    assert not torch.allclose(limit(x, memory), layer(x, memory))


def test_sigmoid_of_equal_logits_is_multi_head_times_a_factor():
    """Each weight is 1 / (n + 1), where a softmax has 1 / n."""
    torch.manual_seed(0)
    limit = sigmoid.Attention(**SIZES)
    for parameter in (limit.query.weight, limit.query.bias):
        nn.init.zeros_(parameter)
    layer, x, memory = multi_head_like(limit), torch.randn(1, 7, 12), torch.randn(1, 5, 10)
    layer.output.weight.data.mul_(5 / 6)
    torch.testing.assert_close(limit(x, memory), layer(x, memory))


def test_one_group_is_multi_query():
    torch.manual_seed(0)
    limit, layer = grouped_query.Attention(**SIZES, groups=1), multi_query.Attention(**SIZES)
    layer.load_state_dict(limit.state_dict())
    x, memory = torch.randn(2, 7, 12), torch.randn(2, 5, 10)
    torch.testing.assert_close(limit(x, memory), layer(x, memory))
