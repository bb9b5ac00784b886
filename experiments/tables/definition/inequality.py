"""Claims as sentences: `th24 > th12 > th6` says that each row scores better than the next.

    left > right         left is better than right (of step_time and parameters: larger)
    left >~ right        left is better, or worse by less than the budget's margin (as good as)
    left ~ right         they differ by less than the margin (the same)
    left = expression    exactly, for numbers that are not measured: `th6 - mh6 = layers * h_k * h`

A side is a sum of rows, or 0: `th24 - mh24 > th6 - mh6` compares two gaps. In a chain of one sign every neighbouring
pair is a part; where a budget has not all of the rows, the sides that it has are neighbours.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

from experiments.settings.mistake import Mistake

IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
SIDE = re.compile(rf"\s*(?:0|-?\s*{IDENTIFIER}(?:\s*[+-]\s*{IDENTIFIER})*)\s*")
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}

Relation = Literal[">", ">~", "~", "="]
Side = dict[str, int]  # row -> how often it is added


@dataclass(frozen=True)
class Part:
    """One comparison of a claim: two sums of rows and the sign between them."""

    left: str
    relation: Relation
    right: str

    @property
    def contrast(self) -> Side:
        """Left less right, of `=` the left side alone: row -> factor."""
        factors = dict(side(self.left))
        for row, factor in side(self.right).items() if self.relation != "=" else ():
            factors[row] = factors.get(row, 0) - factor
        return {row: factor for row, factor in factors.items() if factor}

    @property
    def rows(self) -> list[str]:
        """The rows that it compares."""
        return list(self.contrast)

    @property
    def has_margin(self) -> bool:
        """Whether it says of two sides that one is as good as the other."""
        return "~" in self.relation


def parse(sentence: str, present: Mapping[str, object] | None = None) -> list[Part]:
    """The parts of a sentence, of the rows that are `present` (None: of all). Raises ValueError."""
    if "=" in sentence:
        left, _, right = sentence.partition("=")
        _check_arithmetic(right, sentence)
        return _present([Part(_one_side(left, sentence), "=", right.strip())], present)
    pieces = re.split(r"(>~|>|~)", sentence)
    sides = [_one_side(piece, sentence) for piece in pieces[::2]]
    relations = set(pieces[1::2])
    if len(sides) < 2:
        raise ValueError(f"{sentence!r}: is no comparison; write rows with >, >~, ~ or = between them")
    if len(relations) > 1:
        raise ValueError(f"{sentence!r}: more than one of >, >~ and ~ in a chain; write a sentence for each")
    relation = cast(Relation, relations.pop())
    present_sides = [each for each in sides if present is None or set(side(each)) <= set(present)]
    return [Part(left, relation, right) for left, right in pairwise(present_sides)]


def side(text: str) -> Side:
    """`a + b - c` as {a: 1, b: 1, c: -1}."""
    factors: Side = {}
    for sign, row in re.findall(rf"([+-]?)\s*({IDENTIFIER})", text):
        factors[row] = factors.get(row, 0) + (-1 if sign == "-" else 1)
    return factors


def arithmetic(expression: str, sizes: Mapping[str, object]) -> float:
    """The value of sums and products of numbers and of the named sizes. Raises Mistake for a name that is none."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name):
            size = sizes.get(node.id)
            if not isinstance(size, int | float):
                raise Mistake(f"{expression!r}: there is no size {node.id!r}; there are: {', '.join(sizes)}")
            return size
        assert isinstance(node, ast.BinOp)
        return ARITHMETIC[type(node.op)](value(node.left), value(node.right))

    return value(ast.parse(expression.strip(), mode="eval").body)


def _present(parts: list[Part], present: Mapping[str, object] | None) -> list[Part]:
    return [part for part in parts if present is None or set(part.rows) <= set(present)]


def _one_side(text: str, sentence: str) -> str:
    if not SIDE.fullmatch(text):
        raise ValueError(f"{sentence!r}: {text.strip()!r} is no sum of rows")
    return text.strip()


def _check_arithmetic(text: str, sentence: str) -> None:
    allowed = (ast.BinOp, ast.Name, ast.Load, ast.Constant, *ARITHMETIC)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{sentence!r}: {text.strip()!r} is no arithmetic") from None
    if wrong := [type(node).__name__ for node in ast.walk(tree) if not isinstance(node, allowed)]:
        raise ValueError(f"{sentence!r}: {text.strip()!r} has more than sums and products ({wrong[0]})")
