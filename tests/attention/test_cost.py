"""The formulas at the sizes of T5-base, worked out by hand: d_model = 768, h d_k = 768, n = m = 512, no biases."""

from __future__ import annotations

import pytest
import torch

from attention import multi_head, talking_heads
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
    size = 768 // heads
    with torch.device("meta"):
        plain = multi_head.Attention(768, 768, heads, size, size, True, False, 0.0, "auto").cost(512, 512)
        talking = talking_heads.Attention(
            768, 768, heads, heads, heads, size, size, True, ["logits", "weights"], [], "random", False, 0.0, "auto"
        ).cost(512, 512)
    assert plain.parameters == plain_parameters
    assert talking.parameters == talking_parameters
    assert round(plain.multiplies / 1e9, 3) == plain_multiplies
    assert round(talking.multiplies / 1e9, 3) == talking_multiplies
    assert talking.multiplies - plain.multiplies == 512 * 512 * heads * (heads + heads)


def test_a_dynamic_projection_adds_its_parameters_and_its_product():
    def cost(static: list[str], dynamic: list[str]) -> Cost:
        sizes = (8, 6, 2, 3, 4, 5, 5)
        return talking_heads.Attention(*sizes, True, static, dynamic, "random", False, 0.0, "auto").cost(7, 9)

    both = ["logits", "weights"]
    static = cost(both, [])
    # the first dynamic term takes the static one in and costs no further product of maps
    x2l, l_both, m2w = cost(both, ["x2l"]), cost(both, ["x2l", "m2l"]), cost(both, ["m2w"])
    assert x2l.parameters - static.parameters == 8 * 2 * 3
    assert x2l.multiplies - static.multiplies == 7 * 8 * 2 * 3
    assert l_both.multiplies - x2l.multiplies == 9 * 6 * 2 * 3 + 7 * 9 * 2 * 3
    assert m2w.parameters - static.parameters == 6 * 3 * 4
    assert cost([], ["x2l", "m2w"]).parameters == x2l.parameters + 6 * 3 * 4 - (2 * 3 + 3 * 4)


def test_costs_add_up():
    assert Cost(1, 2) + Cost(10, 20) == Cost(11, 22)
