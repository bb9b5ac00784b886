"""Rotary positions: what the paper promises of them."""

from __future__ import annotations

import copy
import math
import pickle
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from attention import multi_head
from attention.layers.rotary import KEPT, Rotary


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(2, 12), st.integers(0, 5), st.floats(2, 1e5))
def test_a_dot_product_depends_on_the_distance_only(size, length, shift, base):
    query, key = torch.randn(2, size, dtype=torch.float64)
    turned = [Rotary(base)(each.expand(1, length + shift, 1, size))[0, :, 0] for each in (query, key)]
    products = turned[0] @ turned[1].t()
    torch.testing.assert_close(products[shift:, shift:], products[:length, :length])
    torch.testing.assert_close(turned[0].norm(dim=1), query.norm().expand(length + shift))


@pytest.mark.parametrize("first", [0, 1, 4])
def test_positions_may_begin_later(first):
    x = torch.randn(2, 7, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(Rotary(10.0)(x[:, first:], first), Rotary(10.0)(x)[:, first:])


def test_the_angle_is_the_position_times_the_frequency_of_the_pair():
    x = torch.zeros(1, 4, 1, 5, dtype=torch.float64)
    x[..., :2] = 1
    x[..., 4] = 3
    turned = Rotary(100.0)(x)[0, 3, 0]
    expected = [math.cos(3), math.cos(0.3), math.sin(3), math.sin(0.3), 3]
    torch.testing.assert_close(turned, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_gradients_of_first_and_second_order(size):
    x = torch.randn(2, 3, 2, size, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Rotary(10.0), x)
    assert torch.autograd.gradgradcheck(Rotary(10.0), x)


def test_heads_that_share_their_features_are_rotated_once():
    shared = torch.randn(2, 3, 1, 4, dtype=torch.float64, requires_grad=True)
    once = Rotary(10.0)(shared.expand(-1, -1, 5, -1), 2)
    each = Rotary(10.0)(shared.expand(-1, -1, 5, -1).contiguous(), 2)
    assert once.stride(2) == 0
    torch.testing.assert_close(once, each, rtol=0, atol=0)
    weights = torch.randn_like(each)
    gradients = [torch.autograd.grad((turned * weights).sum(), shared) for turned in (once, each)]
    torch.testing.assert_close(*gradients)


def test_bf16_angles_are_exact_far_out():
    x = torch.ones(1, 2000, 1, 4)
    exact, half = Rotary(1e4)(x), Rotary(1e4)(x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert (half - exact).abs().max() < 0.02


def test_attention_with_rotary_knows_the_order():
    layer = multi_head.Attention(8, 2)
    x = torch.randn(1, 6, 8)
    flipped = layer(x.flip(1), rotary=Rotary(1e4)).flip(1)
    assert not torch.allclose(flipped, layer(x, rotary=Rotary(1e4)))
    torch.testing.assert_close(layer(x.flip(1)).flip(1), layer(x))


def test_a_base_of_zero_is_refused():
    with pytest.raises(ValueError, match="base: is 0"):
        Rotary(0)


def kept(rotary: Rotary) -> int:
    """The number of tables that the rotation keeps."""
    return rotary._keep.cache_info().currsize


def test_a_rotation_that_has_turned_others_turns_as_a_new_one_does():
    used = Rotary(10.0)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for length, heads, size, first in ((5, 2, 4, 0), (5, 2, 4, 3), (5, 1, 4, 0), (6, 2, 4, 0), (5, 2, 3, 0)):
            x = torch.randn(2, length, heads, size, dtype=dtype)
            for _ in range(2):
                assert torch.equal(used(x, first), Rotary(10.0)(x, first))
    assert kept(used) == KEPT


def test_tables_go_with_their_rotation_and_a_copy_makes_its_own():
    rotary, x = Rotary(10.0), torch.randn(1, 3, 2, 4)
    turned = rotary(x)
    for copied in (copy.deepcopy(rotary), pickle.loads(pickle.dumps(rotary))):
        assert kept(copied) == 0 and torch.equal(copied(x), turned)
    table = weakref.ref(rotary._keep(3, 2, 4, 0, x.dtype, x.device)[0])
    assert table() is not None and kept(rotary) == 1
    del rotary
    assert table() is None


def test_tables_that_a_cuda_graph_reads_stay_while_their_rotation_does(monkeypatch):
    rotary, x = Rotary(10.0), torch.randn(1, 3, 2, 4)
    with monkeypatch.context() as patched:
        patched.setattr("attention.layers.rotary._is_recorded", lambda x: True, raising=False)
        rotary(x)
    table = weakref.ref(rotary._keep(3, 2, 4, 0, x.dtype, x.device)[0])
    for first in range(1, KEPT + 1):
        rotary(x, first)
    assert table() is not None
    del rotary
    assert table() is None


def test_tables_without_data_and_those_of_inference_are_not_kept():
    rotary, x = Rotary(10.0), torch.randn(1, 3, 2, 4, requires_grad=True)
    rotary(x.to("meta"))
    with FakeTensorMode():
        rotary(torch.empty(x.shape))
    with torch.inference_mode():
        rotary(x)
    assert kept(rotary) == 0
    rotary(x).sum().backward()
    assert kept(rotary) == 1


def test_a_compiled_layer_does_not_notice_which_tables_are_kept():
    layer, rotary, graphs = multi_head.Attention(8, 2), Rotary(10.0), []

    def count(graph, _):
        graphs.append(graph)
        return graph

    call = torch.compile(lambda x: layer(x, rotary=rotary), backend=count, fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 6, 8)
        torch.testing.assert_close(call(x), layer(x, rotary=rotary))
    assert len(graphs) == 1 and kept(rotary) == 1
