"""The little language of claims."""

from __future__ import annotations

import re

import pytest

from experiments.failures.failure import Mistake
from experiments.tables.definition.inequality import Inequality, arithmetic, parse


def test_a_chain_is_its_neighbouring_pairs():
    assert parse("c > b > a") == [Inequality("c", ">", "b"), Inequality("b", ">", "a")]
    assert parse("a ~ b") == [Inequality("a", "~", "b")]
    assert parse("a >~ b") == [Inequality("a", ">~", "b")]


def test_rows_that_a_budget_has_not_are_stepped_over():
    assert parse("d > c > b > a", {"d": 1, "b": 1, "a": 1}) == [Inequality("d", ">", "b"), Inequality("b", ">", "a")]
    assert parse("b > a", {"a": 1}) == []
    assert parse("d - c > b - a", {"a": 1, "b": 1, "c": 1}) == []
    assert parse("b - a = layers", {"a": 1}) == []


def test_sides_are_sums():
    (part,) = parse("d - c > b - a")
    assert part.contrast({}) == {"d": 1, "c": -1, "b": -1, "a": 1}
    (part,) = parse("0 > a")
    assert part.contrast({}) == {"a": -1}
    assert part.constant == 0
    (part,) = parse("a > 0.25")
    assert (part.contrast({}), part.constant) == ({"a": 1}, -0.25)
    (part,) = parse("1 ~ a - b")
    assert (part.contrast({}), part.constant) == ({"a": -1, "b": 1}, 1)
    (part,) = parse("a2 + 0.5 - 0.25 > b1 + 1")
    assert (part.contrast({}), part.constant) == ({"a2": 1, "b1": -1}, -0.75)
    (part,) = parse("b - a = layers * (h_k * h + h * h_v)")
    assert part.contrast({}) == {"b": 1, "a": -1}


def test_arithmetic():
    assert arithmetic("layers * (h_k * h + h * h_v) - 1", {"layers": 2, "h_k": 3, "h": 4, "h_v": 5}) == 63
    with pytest.raises(Mistake, match="'heads'"):
        arithmetic("heads * 2", {"h": 1})


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("a", "is not a comparison; write rows with >, >~, ~ or = between them"),
        ("a > ", "'' is not a sum of rows"),
        ("a > b ~ c", "a chain has more than one of >, >~ and ~"),
        ("a > b >~ c", "a chain has more than one of >, >~ and ~"),
        ("a ~> b", "there is no sign ~>"),
        ("a < b", "there is no sign <"),
        ("a > 2 b", "'2 b' is not a sum of rows"),
        ("a + 1e3 > b", "'a + 1e3' is not a sum of rows"),
        ("a + > b", "'a +' is not a sum of rows"),
        ("a + 0.5 > b > c by h", "a trend is a comparison of rows, without numbers"),
        ("0.5 > a by h", "a trend is a comparison of rows, without numbers"),
        ("a ~ b by h", "a trend is written with > between its sides"),
        ("a = open('x')", "has more than sums and products (Call)"),
        ("a = b.c", "has more than sums and products (Attribute)"),
        ("a = 2 ** 3", "has more than sums and products (Pow)"),
        ("a = [1]", "has more than sums and products (List)"),
        ("a = ", "'' is not arithmetic"),
        ("a = 'x'", "is not arithmetic ('x' is no number)"),
        ("a = True", "is not arithmetic (True is no number)"),
        ("a > a", "'a > a' is not a comparison of rows"),
        ("a > b - b + a", "'a > b - b + a' is not a comparison of rows"),
        ("0 > 0.5", "'0 > 0.5' is not a comparison of rows"),
        ("b - b > 0", "'b - b > 0' is not a comparison of rows"),
        ("a - a = 0", "'a - a = 0' is not a comparison of rows"),
    ],
)
def test_what_is_no_inequality_is_refused_for_its_own_reason(sentence, said):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(sentence))}: .*{re.escape(said)}"):
        parse(sentence)


@pytest.mark.parametrize(
    ("sentence", "beaten"),
    [
        ("a > b", "b"),
        ("a >~ b", "b"),
        ("a ~ b", "ab"),
        ("a - b > c - d", "bc"),
        ("a > b > c by h", "c"),
        ("a - p > b - q > c - r by h", "cp"),
    ],
)
def test_the_rows_whose_improvement_speaks_against_a_part(sentence, beaten):
    (part,) = parse(sentence)
    assert sorted(part.beaten) == [*beaten]
