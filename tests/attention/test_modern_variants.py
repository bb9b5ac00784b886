"""The mechanisms that models use today against their papers' equations, head by head, in float64."""

# n query, m memory; every loop is over heads or positions

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention import build, linear
from tests.fixtures.head_by_head import HEADS, HIDDEN, KEY, MEMORY, VALUE, drawn, head, softmax


def made(name: str, **more) -> nn.Module:
    return drawn(build(name, HIDDEN, HEADS, key_size=KEY, value_size=VALUE, memory_size=MEMORY, **more))


def logits_of(layer: nn.Module, x: Tensor, memory: Tensor, i: int) -> Tensor:
    return head(x, layer.query, i, KEY) @ head(memory, layer.key, i, KEY).mT / math.sqrt(KEY)


def test_grouped_query_with_groups_of_two_heads_and_one(text):
    layer, (x, memory, mask) = made("grouped_query"), text
    outputs = []
    for i, group in enumerate((0, 0, 1)):
        query, key = head(x, layer.query, i, KEY), head(memory, layer.key, group, KEY)
        weights = softmax(query @ key.mT / math.sqrt(KEY), mask)
        outputs.append(weights @ head(memory, layer.value, group, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


@pytest.mark.parametrize(("groups", "message"), [(0, "must be at least 1"), (4, "must be at most heads = 3")])
def test_grouped_query_needs_a_head_in_every_group(groups, message):
    with pytest.raises(ValueError, match=f"groups: is {groups}, {message}"):
        build("grouped_query", HIDDEN, HEADS, groups=groups)


def test_qk_norm(text):
    layer, (x, memory, mask) = made("qk_norm"), text
    outputs = []
    for i in range(HEADS):
        query, key = head(x, layer.query, i, KEY), head(memory, layer.key, i, KEY)
        query = query / (query.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.query_norm.weight
        key = key / (key.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.key_norm.weight
        outputs.append(softmax(query @ key.mT / math.sqrt(KEY), mask) @ head(memory, layer.value, i, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


@pytest.mark.parametrize("causal", [False, True])
def test_sliding_window_attends_to_the_neighbours_alone(causal):
    torch.manual_seed(0)
    layer, whole = build("sliding_window", HIDDEN, HEADS, window=2), build("multi_head", HIDDEN, HEADS)
    whole.load_state_dict(layer.state_dict())
    x = torch.randn(2, 9, HIDDEN)
    output = layer(x, causal=causal)
    for n in range(9):
        near = x[:, max(0, n - 2) : n + 1 if causal else n + 3]
        torch.testing.assert_close(output[:, n : n + 1], whole(x[:, n : n + 1], near))


@pytest.mark.parametrize("learned", [False, True])
def test_sinks(text, learned):
    layer, (x, memory, mask) = made("sinks", learned=learned), text
    sink = layer.sink.logit.exp() if learned else torch.ones(HEADS)
    outputs = []
    for i in range(HEADS):
        powers = logits_of(layer, x, memory, i).exp() * mask[:, 0]
        weights = powers / (sink[i] + powers.sum(-1, keepdim=True))
        outputs.append(weights @ head(memory, layer.value, i, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_a_sink_comes_after_no_position_and_a_bias_leaves_it_as_it_is():
    torch.manual_seed(0)
    layer = build("sinks", HIDDEN, HEADS)
    nn.init.normal_(layer.sink.logit)
    x, past = torch.randn(2, 7, HIDDEN), torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
    expected = layer(x, mask=past)
    torch.testing.assert_close(layer(x, causal=True), expected)
    torch.testing.assert_close(layer(x, bias=torch.zeros(1, 1, 1, 7), mask=past), expected)
    assert not torch.allclose(layer(x, bias=torch.ones(1, 1, 1, 7), mask=past), expected)


def test_linear_is_its_recurrence(monkeypatch):
    """It equals one position after the other, with a state [K, V] and a norm [K], also if the last chunk isn't full."""
    monkeypatch.setattr(linear, "CHUNK", 3)
    torch.manual_seed(0)
    layer, x = (
        build("linear", HIDDEN, HEADS, key_size=KEY, value_size=VALUE).double(),
        torch.randn(2, 8, HIDDEN).double(),
    )
    query, key, value = layer.project(x, x)
    query, key = (nn.functional.elu(each) + 1 for each in (query, key))
    state, norm = torch.zeros(2, HEADS, KEY, VALUE).double(), torch.zeros(2, HEADS, KEY).double()
    outputs = []
    for n in range(8):
        state = state + key[:, n, :, :, None] * value[:, n, :, None]
        norm = norm + key[:, n]
        outputs.append((query[:, n, :, None] @ state)[:, :, 0] / (query[:, n] * norm).sum(-1, keepdim=True))
    expected = layer.output(torch.stack(outputs, 1).flatten(2))
    torch.testing.assert_close(layer(x, causal=True), expected)
    layer.hook = lambda stage, tensor: tensor
    torch.testing.assert_close(layer(x, causal=True), expected)


@pytest.mark.parametrize("heads", [1, HEADS])
def test_linear_reads_one_state_as_it_weighs_pairs(text, heads):
    layer, (x, memory, mask) = made("linear"), text
    # another padding in each head, of a memory of which nothing is left in one of them
    mask = torch.stack([mask[:, 0], ~mask[:, 0], mask.flip(0)[:, 0]][:heads], 1)
    expected = layer(x, memory, mask=mask)
    torch.testing.assert_close(layer(x, memory, mask=mask.expand(2, heads, 7, 6)), expected)
    torch.testing.assert_close(layer(x, memory, mask=mask, bias=torch.zeros(1, 1, 1, 6)), expected)


def test_latent_reads_keys_and_values_from_a_normalised_vector(text):
    layer, (x, memory, mask) = made("latent"), text
    plain = made("latent", latent_norm=False)
    plain.load_state_dict(layer.state_dict(), strict=False)
    nn.init.normal_(layer.norm.weight)
    narrow = memory @ layer.latent.weight.T
    normalised = layer.norm.weight * narrow / (narrow.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    # the plain layer reads from its latent what the other one does from the normalised one
    plain.latent.weight.data.copy_(torch.eye(*plain.latent.weight.shape))
    padded = F.pad(normalised, (0, MEMORY - normalised.shape[-1]))
    torch.testing.assert_close(layer(x, memory, mask=mask), plain(x, padded, mask=mask))


def test_latent_without_its_norm_is_multi_head_with_maps_of_low_rank(text):
    layer, (x, memory, mask) = made("latent", latent_norm=False), text
    whole = build("multi_head", HIDDEN, HEADS, key_size=KEY, value_size=VALUE, memory_size=MEMORY).double()
    for name in ("query", "output"):
        whole.get_submodule(name).load_state_dict(layer.get_submodule(name).state_dict())
    for own, factor in ((whole.key, layer.key), (whole.value, layer.value)):
        own.weight.data.copy_(factor.weight @ layer.latent.weight)
        own.bias.data.copy_(factor.bias)
    assert torch.linalg.matrix_rank(whole.key.weight) == layer.latent.out_features == 3
    torch.testing.assert_close(layer(x, memory, mask=mask), whole(x, memory, mask=mask))


def test_value_residual_adds_the_values_of_the_first_layer(text):
    first, (x, memory, mask) = made("value_residual"), text
    second = made("value_residual")
    nn.init.normal_(second.value.weight)
    earlier: dict[str, Tensor] = {}
    first(x, memory, earlier=earlier)
    a, b = second.balance.weight
    outputs = []
    for i in range(HEADS):
        value = a * head(memory, first.value, i, VALUE) + b * head(memory, second.value, i, VALUE)
        outputs.append(softmax(logits_of(second, x, memory, i), mask) @ value)
    output = second(x, memory, mask=mask, earlier=earlier)
    torch.testing.assert_close(output, second.output(torch.cat(outputs, -1)))


def test_multi_token(text):
    layer, (x, memory, mask) = made("multi_token", query_window=2, key_window=3), text
    kernel, maps = layer.convolution.weight, []
    for i in range(HEADS):
        logits = logits_of(layer, x, memory, i) * mask[:, 0]
        mixed = torch.zeros_like(logits)
        for n in range(7):
            for m in range(6):
                for row in (0, 1):
                    for column in (0, 1, 2):
                        # the last row is the query's own, the middle column the key's own
                        query, key = n + row - 1, m + column - 1
                        if query >= 0 and 0 <= key < 6:
                            mixed[:, n, m] += kernel[i, row, column] * logits[:, query, key]
        maps.append(softmax(mixed, mask))
    weights = torch.einsum("bhnm,hg->bgnm", torch.stack(maps, 1), layer.weights_projection.static)
    outputs = [weights[:, i] @ head(memory, layer.value, i, VALUE) for i in range(HEADS)]
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))
