"""The formulas at the sizes of T5-base, worked out by hand: d_model = 768, h d_k = 768, n = m = 512, no biases."""

from __future__ import annotations

import pytest
import torch

from attention import build, multi_head, talking_heads
from attention.layers.cost import Cost

TABLE = [
    # heads, parameters of multi-head and talking heads, multiplies of both in units of 10**9
    (6, 2_359_296, 2_359_368, 1.611, 1.629),
    (12, 2_359_296, 2_359_584, 1.611, 1.686),
    (24, 2_359_296, 2_360_448, 1.611, 1.913),
    (48, 2_359_296, 2_363_904, 1.611, 2.819),
]


@pytest.mark.parametrize("row", TABLE)
def test_talking_heads_cost_n_m_h_times_both_head_numbers_more(row):
    heads, plain_parameters, talking_parameters, plain_multiplies, talking_multiplies = row
    with torch.device("meta"):
        plain = multi_head.Attention(768, heads, linear_bias=False).cost(512, 512)
        talking = talking_heads.Attention(768, heads, linear_bias=False).cost(512, 512)
    assert plain.parameters == plain_parameters
    assert talking.parameters == talking_parameters
    assert round(plain.multiplies / 1e9, 3) == plain_multiplies
    assert round(talking.multiplies / 1e9, 3) == talking_multiplies
    assert talking.multiplies - plain.multiplies == 512 * 512 * heads * (heads + heads)


def test_a_dynamic_projection_adds_its_parameters_and_its_product():
    def cost(static: list[str], dynamic: list[str]) -> Cost:
        layer = talking_heads.Attention(8, 2, 3, 4, 5, 5, 6, static=static, dynamic=dynamic, linear_bias=False)
        return layer.cost(7, 9)

    both = ["logits", "weights"]
    static = cost(both, [])
    # the first dynamic term takes the static one in and costs no further product of maps
    x2l, l_both, m2w = cost(both, ["x2l"]), cost(both, ["x2l", "m2l"]), cost(both, ["m2w"])
    assert x2l.parameters - static.parameters == 8 * 2 * 3
    assert x2l.multiplies - static.multiplies == 7 * 8 * 2 * 3
    assert l_both.multiplies - x2l.multiplies == 9 * 6 * 2 * 3 + 7 * 9 * 2 * 3
    assert m2w.parameters - static.parameters == 6 * 3 * 4
    assert cost([], ["x2l", "m2w"]).parameters == x2l.parameters + 6 * 3 * 4 - (2 * 3 + 3 * 4)


CACHED = {
    # numbers kept of 9 memory positions of width 6, of 4 heads with keys of 3 and values of 2
    "multi_head": 9 * 4 * (3 + 2),
    "multi_query": 9 * (3 + 2),
    "grouped_query": 9 * 2 * (3 + 2),
    "latent": 9 * 2,
    "linear": 4 * (3 * 2 + 3),
    "sliding_window": 9 * 4 * (3 + 2),
    "sinks": 9 * 4 * (3 + 2),
    # with the rows of five queries before the next
    "multi_token": 9 * 4 * (3 + 2) + 5 * 4 * 3,
    # the shared keys, and the content bias of each head
    "collaborative": 9 * (4 * 3 + 4 * 2 + 4),
    "low_rank_value": 9 * 4 * (3 + 2),
    "differential": 9 * 4 * (2 * 3 + 2),
    "talking_heads": 9 * 4 * (3 + 2),
    # with two matrices of the heads for each position
    "dynamically_composable": 9 * (4 * (3 + 2) + 2 * 4 * 4),
}


@pytest.mark.parametrize("name", CACHED)
def test_what_is_kept_of_the_memory(name):
    layer = build(name, 8, 4, key_size=3, value_size=2, memory_size=6)
    assert layer.cost(7, 9).cached == CACHED[name]


def test_what_else_is_kept_of_the_memory():
    assert build("general_bilinear", 8, 4, memory_size=6).cost(7, 9).cached == 9 * 6, "the memory itself"
    windowed = build("sliding_window", 8, 4, window=2)
    assert windowed.cost(9, 9).cached == 3 * 2 * 8
    assert windowed.cost(7, 9).cached == 9 * 2 * 8, "all of another sequence"
    dynamic = build("talking_heads", 8, 4, dynamic=["x2l", "m2l"]).cost(7, 9).cached
    assert dynamic == 9 * (2 * 8 + 4 * 4), "a projection for each position of the memory"


def test_costs_add_up():
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)
