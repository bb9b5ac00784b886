"""The mechanisms that test_equations.py leaves out, against their papers' equations, head by head, in float64."""

# n query, m memory; every loop is over heads or positions

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention import build, linear
from tests.fixtures.head_by_head import HEADS, HIDDEN, KEY, MEMORY, SIZES, VALUE, drawn, head, softmax

BACKENDS = pytest.mark.parametrize("backend", ["reference", "blocked", "auto"])


def made(name: str, **more) -> nn.Module:
    return drawn(build(name, **SIZES, **more))


def logits_of(layer: nn.Module, x: Tensor, memory: Tensor, i: int) -> Tensor:
    return head(x, layer.query, i, KEY) @ head(memory, layer.key, i, KEY).mT / math.sqrt(KEY)


@BACKENDS
def test_differential(text, backend):
    layer, (x, memory, mask) = made("differential", backend=backend, lambda_init=0.8), text
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
    ours = build("differential", 12, 3, key_size=2, linear_bias=False).cost(7, 7).parameters
    # but for the four vectors of lambda and the gain of the norm
    assert ours - 4 * 2 - 4 == build("multi_head", 12, 3, linear_bias=False).cost(7, 7).parameters


@pytest.mark.parametrize("lambda_init", [1.0, 1.5])
def test_differential_refuses_to_multiply_its_heads_by_nothing(lambda_init):
    with pytest.raises(ValueError, match="lambda_init: is 1"):
        build("differential", 12, 3, lambda_init=lambda_init)


@BACKENDS
def test_collaborative(text, backend):
    layer, (x, memory, mask) = made("collaborative", backend=backend, start="random"), text
    outputs = []
    for i in range(HEADS):
        shared = layer.query(x) @ layer.mixing.weight[i].diag() @ layer.key(memory).mT
        logits = (shared + layer.content_bias(memory)[..., i].unsqueeze(1)) / math.sqrt(KEY)
        outputs.append(softmax(logits, mask) @ head(memory, layer.value, i, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_the_content_bias_is_what_a_bias_of_the_queries_does(text):
    """(x W + c) K^T = x W K^T + M b with b = W_k^T c. A bias of the keys adds the same to all positions."""
    x, memory, mask = text
    plain = made("multi_head", backend="reference")
    layer = made("collaborative", backend="reference", start="concatenated")
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


def test_a_content_bias_keeps_no_map():
    layer, kept = build("collaborative", HIDDEN, HEADS), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()), lambda _: None):
        layer(torch.randn(1, 200, HIDDEN))
    assert 0 < max(kept) < HEADS * 200 * 200


def test_collaborative_without_biases_has_no_content_bias(text):
    x, memory, mask = text
    layer = made("collaborative", linear_bias=False)
    biased = made("collaborative")
    assert not [name for name, _ in layer.named_parameters() if "bias" in name]
    for name, parameter in biased.named_parameters():
        parameter.data.copy_(layer.state_dict()[name] if "bias" not in name else torch.zeros_like(parameter))
    torch.testing.assert_close(layer(x, memory, mask=mask), biased(x, memory, mask=mask))
    assert layer.cost(7, 6).parameters == sum(parameter.numel() for parameter in layer.parameters())


@BACKENDS
def test_gated(text, backend):
    layer, (x, memory, mask) = made("gated", backend=backend), text
    outputs = []
    for i in range(HEADS):
        output = softmax(logits_of(layer, x, memory, i), mask) @ head(memory, layer.value, i, VALUE)
        outputs.append(output * torch.sigmoid(x @ layer.gate.weight[i * VALUE : (i + 1) * VALUE].T))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))
    assert layer.gate.bias is None


@BACKENDS
def test_knocking_heads(text, backend):
    layer, (x, memory, mask) = made("knocking_heads", backend=backend), text
    outputs = []
    for i in range(HEADS):
        query = head(x, layer.query, i, KEY) @ layer.shared_query.weight
        key = head(memory, layer.key, i, KEY) @ layer.shared_key.weight
        value = head(memory, layer.value, i, VALUE) @ layer.shared_value.weight
        outputs.append(softmax(query @ key.mT / math.sqrt(KEY), mask) @ value)
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


@BACKENDS
def test_multi_query(text, backend):
    layer, (x, memory, mask) = made("multi_query", backend=backend), text
    key, value = layer.key(memory), layer.value(memory)
    assert key.shape == (2, 6, KEY) and value.shape == (2, 6, VALUE)
    outputs = [softmax(head(x, layer.query, i, KEY) @ key.mT / math.sqrt(KEY), mask) @ value for i in range(HEADS)]
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_sigmoid(text):
    """b = -log(n), with n the positions that are not padding."""
    layer, (x, memory, mask) = made("sigmoid"), text
    n, outputs = mask[:, 0].sum(-1, keepdim=True), []
    for i in range(HEADS):
        weights = 1 / (1 + torch.exp(n.log() - logits_of(layer, x, memory, i)))
        outputs.append((weights * mask[:, 0]) @ head(memory, layer.value, i, VALUE))
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_sigmoid_without_a_mask_counts_the_whole_memory(text):
    layer, (x, memory, _) = made("sigmoid"), text
    nowhere_hidden = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    torch.testing.assert_close(layer(x, memory), layer(x, memory, mask=nowhere_hidden))


def test_sigmoid_weights_of_logits_of_zero_sum_to_about_one(text):
    layer, (x, memory, _), seen = made("sigmoid"), text, {}
    nn.init.zeros_(layer.query.weight)
    nn.init.zeros_(layer.query.bias)
    layer.hook = lambda stage, tensor: seen.setdefault(stage, tensor)
    layer(x, memory)
    torch.testing.assert_close(seen["mixed_weights"].sum(-1), torch.full((2, HEADS, 7), 6 / 7, dtype=torch.float64))


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


def test_linear_names_its_own_arithmetic_or_the_kernel_that_computes_all_pairs(text):
    x, memory, _ = text
    for backend, hook, expected in (
        ("auto", None, "linear"),
        ("reference", None, "reference"),
        ("auto", lambda stage, tensor: tensor, "reference"),
    ):
        layer = made("linear", backend=backend)
        layer.hook = hook
        layer(x, memory)
        assert layer.kernel == expected
    # a bias needs all pairs, and any kernel takes them
    layer = made("linear")
    layer(x, memory, bias=x.new_zeros(1, 1, 1, 1))
    assert layer.kernel not in (None, "linear")


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_sigmoid_has_no_other_arithmetic(text, backend):
    x, memory, _ = text
    layer = made("sigmoid", backend=backend)
    for hook in (None, lambda stage, tensor: tensor):
        layer.hook = hook
        layer(x, memory)
        assert layer.kernel == "sigmoid"


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


def composed(projection: nn.Module, maps: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """A + A (F + G) for the maps A of each pair of positions, one product at a time: [B, h, N, M]."""
    mixed = maps.clone()
    for matrix, inputs, others in ((projection.query, x, -1), (projection.memory, memory, -2)):
        hidden, gate = F.gelu(inputs @ matrix.hidden), torch.tanh(inputs @ matrix.gate)
        for r in range(matrix.first.shape[1]):
            first = hidden @ matrix.first[:, r]
            first = first / (first.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            second = hidden @ matrix.second[:, r]
            summed = sum(maps[:, i] * first[..., i].unsqueeze(others) for i in range(HEADS))
            for i in range(HEADS):
                mixed[:, i] += summed * second[..., i].unsqueeze(others)
        for i in range(HEADS):
            mixed[:, i] += maps[:, i] * gate[..., i].unsqueeze(others)
    return mixed


@BACKENDS
def test_dynamically_composable(text, backend):
    layer, (x, memory, mask) = made("dynamically_composable", backend=backend), text
    logits = torch.stack([logits_of(layer, x, memory, i) for i in range(HEADS)], 1)
    logits = composed(layer.logits_projection, logits, x, memory)
    weights = torch.stack([softmax(logits[:, i], mask) for i in range(HEADS)], 1)
    weights = composed(layer.weights_projection, weights, x, memory)
    outputs = [weights[:, i] @ head(memory, layer.value, i, VALUE) for i in range(HEADS)]
    torch.testing.assert_close(layer(x, memory, mask=mask), layer.output(torch.cat(outputs, -1)))


def test_dynamically_composable_starts_near_multi_head(text):
    layer, (x, memory, mask) = build("dynamically_composable", **SIZES).double(), text
    plain = build("multi_head", **SIZES).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    difference = layer(x, memory, mask=mask) - plain(x, memory, mask=mask)
    assert 0 < difference.abs().max() < 0.02 * plain(x, memory, mask=mask).abs().max()


@pytest.mark.parametrize("output", [torch.zeros(1, 4, 8), torch.zeros(2, 4, 3), None])
def test_an_output_of_another_shape_is_refused(output):
    layer = build("multi_head", 8, 2)
    layer.combine = lambda heads: output
    with pytest.raises(ValueError, match=r"^combine returns .*, must return shape \[2, 4, 8\] \(B, N, D\)"):
        layer(torch.zeros(2, 4, 8))
