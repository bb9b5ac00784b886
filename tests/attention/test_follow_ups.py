"""The follow-ups of talking heads against their papers' equations, head by head, in float64."""

# n query, m memory; every loop is over heads

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attention import collaborative, differential, gated, knocking_heads, multi_head, multi_query, sigmoid
from tests.fixtures.head_by_head import HEADS, KEY, SIZES, VALUE, drawn, head, softmax

BACKENDS = pytest.mark.parametrize("backend", ["reference", "blocked", "auto"])


def made(module, backend: str, **more) -> nn.Module:
    return drawn(module.Attention(**SIZES, **more, linear_bias=True, dropout=0.0, backend=backend))


@BACKENDS
def test_differential(text, backend):
    layer, (x, memory, mask) = made(differential, backend, lambda_init=0.8), text
    b = layer.balance
    lam = (b.query1 @ b.key1).exp() - (b.query2 @ b.key2).exp() + 0.8
    outputs = []
    for i in range(HEADS):
        maps = []
        for half in (2 * i, 2 * i + 1):
            query, key = head(x, layer.query, half, KEY), head(memory, layer.key, half, KEY)
            maps.append(softmax(query @ key.mT / math.sqrt(KEY), mask))
        output = (maps[0] - lam * maps[1]) @ head(memory, layer.value, i, VALUE)
        output = output / (output.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.head_norm.weight
        outputs.append((1 - 0.8) * output)
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_differential_with_half_the_key_size_has_the_parameters_of_multi_head():
    ours = differential.Attention(12, 3, key_size=2, linear_bias=False).cost(7, 7).parameters
    # but for the four vectors of lambda and the gain of the norm
    assert ours - 4 * 2 - 4 == multi_head.Attention(12, 3, linear_bias=False).cost(7, 7).parameters


@pytest.mark.parametrize("lambda_init", [1.0, 1.5])
def test_differential_refuses_to_multiply_its_heads_by_nothing(lambda_init):
    with pytest.raises(ValueError, match="lambda_init: is 1"):
        differential.Attention(12, 3, lambda_init=lambda_init)


@BACKENDS
def test_collaborative(text, backend):
    layer, (x, memory, mask) = made(collaborative, backend, start="random"), text
    outputs = []
    for i in range(HEADS):
        shared = layer.query(x) @ layer.mixing.weight[i].diag() @ layer.key(memory).mT
        logits = (shared + layer.content_bias(memory)[..., i].unsqueeze(1)) / math.sqrt(KEY)
        outputs.append(softmax(logits, mask) @ head(memory, layer.value, i, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_the_content_bias_is_what_a_bias_of_the_queries_does(text):
    """(x W + c) K^T = x W K^T + M b with b = W_k^T c. A bias of the keys adds the same to all positions."""
    x, memory, mask = text
    plain = made(multi_head, "reference", scaled=True)
    layer = made(collaborative, "reference", start="concatenated")
    layer.mixing.reset_parameters()
    with torch.no_grad():
        layer.query.weight.copy_(plain.query.weight)
        layer.key.weight.copy_(plain.key.weight)
        layer.value.load_state_dict(plain.value.state_dict())
        layer.output.load_state_dict(plain.output.state_dict())
        for i in range(HEADS):
            rows = slice(i * KEY, (i + 1) * KEY)
            layer.content_bias.weight[i] = plain.query.bias[rows] @ plain.key.weight[rows]
    torch.testing.assert_close(layer(x, memory, mask=mask), plain(x, memory, mask=mask))


def test_collaborative_without_biases_has_no_content_bias(text):
    x, memory, mask = text
    layer = drawn(collaborative.Attention(**SIZES, linear_bias=False))
    biased = drawn(collaborative.Attention(**SIZES))
    assert not [name for name, _ in layer.named_parameters() if "bias" in name]
    for name, parameter in biased.named_parameters():
        parameter.data.copy_(layer.state_dict()[name] if "bias" not in name else torch.zeros_like(parameter))
    torch.testing.assert_close(layer(x, memory, mask=mask), biased(x, memory, mask=mask))
    assert layer.cost(7, 6).parameters == sum(parameter.numel() for parameter in layer.parameters())


@BACKENDS
def test_gated(text, backend):
    layer, (x, memory, mask) = made(gated, backend, scaled=True), text
    outputs = []
    for i in range(HEADS):
        query, key = head(x, layer.query, i, KEY), head(memory, layer.key, i, KEY)
        output = softmax(query @ key.mT / math.sqrt(KEY), mask) @ head(memory, layer.value, i, VALUE)
        outputs.append(output * torch.sigmoid(x @ layer.gate.weight[i * VALUE : (i + 1) * VALUE].T))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))
    assert layer.gate.bias is None


@BACKENDS
def test_knocking_heads(text, backend):
    layer, (x, memory, mask) = made(knocking_heads, backend, scaled=True), text
    outputs = []
    for i in range(HEADS):
        query = head(x, layer.query, i, KEY) @ layer.shared_query.weight
        key = head(memory, layer.key, i, KEY) @ layer.shared_key.weight
        value = head(memory, layer.value, i, VALUE) @ layer.shared_value.weight
        outputs.append(softmax(query @ key.mT / math.sqrt(KEY), mask) @ value)
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


@BACKENDS
def test_multi_query(text, backend):
    layer, (x, memory, mask) = made(multi_query, backend), text
    key, value = layer.key(memory), layer.value(memory)
    assert key.shape == (2, 6, KEY) and value.shape == (2, 6, VALUE)
    outputs = [softmax(head(x, layer.query, i, KEY) @ key.mT / math.sqrt(KEY), mask) @ value for i in range(HEADS)]
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_sigmoid(text):
    """b = -log(n), with n the positions that are not padding."""
    layer, (x, memory, mask) = made(sigmoid, "auto"), text
    n, outputs = mask[:, 0].sum(-1, keepdim=True), []
    for i in range(HEADS):
        query, key = head(x, layer.query, i, KEY), head(memory, layer.key, i, KEY)
        weights = 1 / (1 + torch.exp(-(query @ key.mT / math.sqrt(KEY) - n.log())))
        outputs.append((weights * mask[:, 0]) @ head(memory, layer.value, i, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_sigmoid_without_a_mask_counts_the_whole_memory(text):
    layer, (x, memory, _) = made(sigmoid, "auto"), text
    nowhere_hidden = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    torch.testing.assert_close(layer(x, memory), layer(x, memory, mask=nowhere_hidden))


def test_sigmoid_weights_of_logits_of_zero_sum_to_about_one(text):
    layer, (x, memory, _), seen = made(sigmoid, "auto"), text, {}
    nn.init.zeros_(layer.query.weight)
    nn.init.zeros_(layer.query.bias)
    layer.hook = lambda stage, tensor: seen.setdefault(stage, tensor)
    layer(x, memory)
    torch.testing.assert_close(seen["mixed_weights"].sum(-1), torch.full((2, HEADS, 7), 6 / 7, dtype=torch.float64))
