"""The mechanisms against torch's multi-head layer, and against the papers' equations, written out here."""

# n query, m memory, i hidden, j memory width, k key size, v value size; a key heads, h softmax heads, c value heads

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from attention import additive, general_bilinear, low_rank_value, multi_head, talking_heads
from attention.kernels.problem import Projection
from attention.layers.attend import attend

HIDDEN, MEMORY = 12, 10


def copy_into(layer: multi_head.Attention, torch_layer: nn.MultiheadAttention) -> None:
    parts = torch_layer.in_proj_weight.chunk(3)
    with torch.no_grad():
        for name, weight, bias in zip(("query", "key", "value"), parts, torch_layer.in_proj_bias.chunk(3), strict=True):
            getattr(layer, name).weight.copy_(weight)
            getattr(layer, name).bias.copy_(bias)
        layer.output.load_state_dict(torch_layer.out_proj.state_dict())


@pytest.mark.parametrize("backend", ["reference", "sdpa", "blocked", "compiled", "auto"])
@pytest.mark.parametrize("length", [1, 7, 63])
def test_multi_head_is_torchs_multihead_attention_with_masks_and_gradients(backend, length):
    torch.manual_seed(0)
    other = nn.MultiheadAttention(HIDDEN, 3, batch_first=True, dtype=torch.float64)
    nn.init.normal_(other.in_proj_bias)
    layer = multi_head.Attention(HIDDEN, 3, backend=backend).double()
    copy_into(layer, other)
    x = torch.randn(2, length, HIDDEN, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, length + 2, HIDDEN, dtype=torch.float64)
    padding = torch.zeros(2, length + 2, dtype=torch.bool)
    padding[0, -2:] = True
    forbidden = torch.rand(length, length + 2) < 0.3
    forbidden[:, 0] = False

    expected = other(x, memory, memory, key_padding_mask=padding, attn_mask=forbidden, need_weights=False)[0]
    got = layer(x, memory, mask=~(padding[:, None, None] | forbidden))
    torch.testing.assert_close(got, expected)
    assert backend in ("auto", layer.kernel)
    for loss in (got, expected):
        loss.square().sum().backward()
    weights = torch.cat([layer.query.weight.grad, layer.key.weight.grad, layer.value.weight.grad])
    torch.testing.assert_close(weights, other.in_proj_weight.grad)

    causal = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    expected = other(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0]
    torch.testing.assert_close(layer(x, causal=True), expected)


def talking_heads_equations(layer: talking_heads.Attention, X: Tensor, M: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
    """The pseudo-code of 2003.02436, with one matrix P for each pair of positions, the sum of its terms."""
    h_k, h, h_v = layer.key_heads, layer.softmax_heads, layer.value_heads
    P_q = layer.query.weight.view(h_k, -1, HIDDEN)
    P_k = layer.key.weight.view(h_k, -1, MEMORY)
    P_v = layer.value.weight.view(h_v, -1, MEMORY)
    P_o = layer.output.weight.view(HIDDEN, h_v, -1)
    outputs = []
    for x, m, allowed, added in zip(X, M, mask, bias, strict=True):
        Q = torch.einsum("ni,aki->nka", x, P_q) + layer.query.bias.view(h_k, -1).t()
        K = torch.einsum("mj,akj->mka", m, P_k) + layer.key.bias.view(h_k, -1).t()
        V = torch.einsum("mj,cvj->mvc", m, P_v) + layer.value.bias.view(h_v, -1).t()
        J = torch.einsum("nka,mka->nma", Q, K) / math.sqrt(layer.key_size)
        P = [torch.zeros(len(x), len(m), *size, dtype=x.dtype) for size in ((h_k, h), (h, h_v))]
        for both, projection in zip(P, (layer.logits_projection, layer.weights_projection), strict=True):
            if projection.static is not None:
                both += projection.static
            if projection.query is not None:
                both += torch.einsum("ni,iah->nah", x, projection.query)[:, None]
            if projection.memory is not None:
                both += torch.einsum("mj,jah->mah", m, projection.memory)[None]
        L = torch.einsum("nma,nmah->nmh", J, P[0]) + added.permute(1, 2, 0)
        L = L.masked_fill(~allowed[:, :, None], -math.inf)
        E = torch.exp(L - L.amax(1, keepdim=True))
        W = E / E.sum(1, keepdim=True)
        U = torch.einsum("nmh,nmhc->nmc", W, P[1])
        O = torch.einsum("nmc,mvc->nvc", U, V)  # noqa: E741 - the paper's letter
        outputs.append(torch.einsum("nvc,icv->ni", O, P_o) + layer.output.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize("backend", ["reference", "blocked", "auto"])
@pytest.mark.parametrize(
    ("static", "dynamic"),
    [
        (["logits", "weights"], []),
        (["logits", "weights"], ["x2l", "m2l", "x2w", "m2w"]),
        (["logits"], ["m2l", "x2w"]),
        ([], ["x2l", "m2w"]),
    ],
)
def test_talking_heads_are_the_papers_equations(backend, static, dynamic):
    torch.manual_seed(0)
    layer = talking_heads.Attention(
        HIDDEN, 2, 5, 3, 4, 6, MEMORY, static=static, dynamic=dynamic, backend=backend
    ).double()
    for projection in (layer.logits_projection, layer.weights_projection):
        for term in (projection.query, projection.memory):
            if term is not None:
                nn.init.normal_(term, std=0.2)
    X, M = torch.randn(2, 7, HIDDEN).double(), torch.randn(2, 9, MEMORY).double()
    mask = torch.rand(2, 7, 9) < 0.7
    mask[:, :, 0] = True
    bias = torch.randn(2, 5, 7, 9).double()
    expected = talking_heads_equations(layer, X, M, mask, bias)
    torch.testing.assert_close(layer(X, M, mask=mask[:, None], bias=bias), expected)


def test_zero_dynamic_terms_are_the_static_form():
    sizes = (HIDDEN, 2, 5, 3, 4, 6, MEMORY)
    static = talking_heads.Attention(*sizes)
    dynamic = talking_heads.Attention(*sizes, dynamic=["x2l", "m2l", "x2w", "m2w"])
    dynamic.load_state_dict(static.state_dict(), strict=False)
    for projection in (dynamic.logits_projection, dynamic.weights_projection):
        nn.init.zeros_(projection.query)
        nn.init.zeros_(projection.memory)
    x, memory = torch.randn(2, 7, HIDDEN), torch.randn(2, 5, MEMORY)
    torch.testing.assert_close(dynamic(x, memory), static(x, memory))


def test_a_mask_mixed_by_the_logits_projection_would_be_nan_and_after_it_is_exact():
    """P_l turns -inf into +inf or NaN. With -inf after P_l, the result is as if masked memory did not exist."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, 3, 5, dtype=torch.float64) for _ in range(3))
    P_l = torch.tensor([[1.0, -1.0, 0.5], [0.5, 1.0, -1.0], [-2.0, 1.0, 1.0]], dtype=torch.float64)
    logits = torch.einsum("bnhk,bmhk->bhnm", query, key)
    logits[..., 2:] = -math.inf
    assert torch.einsum("bhnm,hg->bgnm", logits, P_l).softmax(-1).isnan().any()

    mask = torch.tensor([True, True, False, False])[None, None, None]
    for backend in ("reference", "blocked", "compiled"):
        arguments = {"logits_projection": Projection(P_l), "weights_projection": Projection(P_l), "backend": backend}
        masked = attend(query, key, value, mask=mask, **arguments)
        torch.testing.assert_close(masked, attend(query, key[:, :2], value[:, :2], **arguments))
        assert attend(query, key, value, mask=torch.zeros_like(mask), **arguments).eq(0).all()


@pytest.mark.parametrize(
    ("sizes", "static", "dynamic", "start", "message"),
    [
        ((4, 6, 6), ["weights"], [], "random", "key_heads: is 4, must equal softmax_heads = 6 as nothing mixes them"),
        ((6, 6, 4), ["logits"], [], "random", "softmax_heads: is 6, must equal value_heads = 4"),
        ((6, 6, 4), ["logits"], ["x2l", "m2l"], "random", "softmax_heads: is 6"),
        ((4, 6, 6), ["logits"], [], "identity", "start: identity needs key_heads = 4 to equal softmax_heads = 6"),
        ((4, 4, 4), ["logits", "logits"], [], "random", "static: is .*, must be of logits, weights, each at most once"),
        ((4, 4, 4), [], ["x2q"], "random", "dynamic: is .*, must be of x2l, m2l, x2w, m2w"),
        ((4, 4, 4), [], [], "ones", "start: is 'ones', must be random or identity"),
        ((4, 0, 4), ["logits", "weights"], [], "random", "softmax_heads: is 0, must be at least 1"),
    ],
)
def test_head_numbers_and_choices_that_do_not_fit_are_named(sizes, static, dynamic, start, message):
    with pytest.raises(ValueError, match=message):
        talking_heads.Attention(12, *sizes, 3, 3, static=static, dynamic=dynamic, start=start)


def test_one_projection_allows_other_head_numbers_on_its_side():
    for sizes, static, dynamic in (((4, 6, 6), ["logits"], []), ((6, 6, 4), ["weights"], []), ((4, 6, 6), [], ["m2l"])):
        layer = talking_heads.Attention(12, *sizes, 3, 3, static=static, dynamic=dynamic)
        assert layer(torch.randn(2, 5, 12)).shape == (2, 5, 12)


def test_the_random_start_keeps_the_variance_of_the_logits():
    layer = talking_heads.HeadProjection(
        ("key_heads", 64), ("softmax_heads", 256), static=True, query_size=40, memory_size=0, start="random"
    )
    assert layer.static.var().item() == pytest.approx(1 / 64, rel=0.05)
    assert layer.static.abs().max() < 2.3 / 8
    assert layer.query.var().item() == pytest.approx(0.01 / (64 * 40), rel=0.05)


def test_an_sdpa_backend_refuses_to_mix_heads():
    with pytest.raises(ValueError, match="backend: sdpa can't do this: it can't mix heads"):
        talking_heads.Attention(12, 3, static=["logits"], backend="sdpa")(torch.randn(2, 5, 12))
    layer = talking_heads.Attention(12, 3, static=[], backend="sdpa")
    assert layer(torch.randn(2, 5, 12)).shape == (2, 5, 12) and layer.kernel == "sdpa"


def test_unscaled_is_the_scaled_layer_with_a_query_sqrt_of_the_key_size_larger():
    scaled = multi_head.Attention(HIDDEN, 3)
    unscaled = multi_head.Attention(HIDDEN, 3, scaled=False)
    unscaled.load_state_dict(scaled.state_dict())
    with torch.no_grad():
        scaled.query.weight.mul_(2), scaled.query.bias.mul_(2)
    x = torch.randn(2, 7, HIDDEN)
    torch.testing.assert_close(unscaled(x), scaled(x))


def test_additive_is_bahdanaus_equation_also_in_several_blocks(monkeypatch):
    torch.manual_seed(0)
    layer = additive.Attention(HIDDEN, 2, 3, 4, MEMORY).double()
    x, memory = torch.randn(2, 7, HIDDEN).double(), torch.randn(2, 5, MEMORY).double()
    query, key, value = layer.project(x, memory)
    heads = []
    for head in range(2):
        energy = torch.zeros(2, 7, 5, dtype=torch.float64)
        for n in range(7):
            for m in range(5):
                energy[:, n, m] = torch.tanh(query[:, n, head] + key[:, m, head]) @ layer.comparison.weight[head]
        heads.append(energy.softmax(-1) @ value[:, :, head])
    expected = layer.output(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(x, memory), expected)
    grads = torch.autograd.grad(expected.sum(), list(layer.parameters()))
    monkeypatch.setattr(additive, "BLOCK_VALUES", 100)
    blocks = layer(x, memory)
    torch.testing.assert_close(blocks, expected)
    torch.testing.assert_close(torch.autograd.grad(blocks.sum(), list(layer.parameters())), grads)


def test_additive_adds_a_position_bias():
    layer = additive.Attention(HIDDEN, 2, 3, 4)
    x, bias = torch.randn(2, 7, HIDDEN), torch.zeros(1, 2, 7, 7)
    bias[..., 3:] = -math.inf
    torch.testing.assert_close(layer(x, bias=bias), layer(x, x[:, :3]))


def test_general_bilinear_is_one_full_form_a_head():
    torch.manual_seed(0)
    layer = general_bilinear.Attention(HIDDEN, 3, MEMORY, linear_bias=False).double()
    x, memory = torch.randn(7, HIDDEN).double(), torch.randn(5, MEMORY).double()
    forms = layer.query.weight.view(3, MEMORY, HIDDEN)
    heads = [(x @ form.t() @ memory.t() / math.sqrt(MEMORY)).softmax(-1) @ memory for form in forms]
    torch.testing.assert_close(layer(x[None], memory[None])[0], layer.output(torch.cat(heads, dim=-1)))


def test_low_rank_value_has_the_rank_of_the_value_size_and_the_parameters_of_multi_head():
    layer = low_rank_value.Attention(HIDDEN, 3, 4, 2, linear_bias=False).double()
    value = layer.project(*2 * [torch.eye(HIDDEN).double()[None]])[2]
    assert value.shape == (1, HIDDEN, 3, HIDDEN)
    assert [torch.linalg.matrix_rank(value[0, :, head]).item() for head in range(3)] == [2, 2, 2]
    multi_head.Attention(HIDDEN, 3, 4, 2, linear_bias=False).load_state_dict(layer.state_dict())


def test_a_logits_map_of_a_head_has_at_most_the_rank_of_the_key_size_until_heads_mix():
    """The low-rank bottleneck (2002.07028): rank(QK^T) <= d_k, while mixed logits of h heads reach h d_k."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 16, 3, 2).double()
    J = torch.einsum("nhk,mhk->hnm", query, key)
    mixed = torch.einsum("hnm,hg->gnm", J, torch.randn(3, 3).double())
    assert torch.linalg.matrix_rank(J).tolist() == [2, 2, 2]
    assert torch.linalg.matrix_rank(mixed).tolist() == [6, 6, 6]
