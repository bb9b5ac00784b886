"""Claims as sentences: `th24 > th12 > th6` says that each row scores better than the next.

    left > right         left is better than right (of step_time and parameters: larger)
    left >~ right        left is better, or worse by less than the budget's margin (as good as)
    left ~ right         they differ by less than the margin (the same)
    left = expression    exactly, for numbers that are not measured: `th6 - mh6 = layers * h_k * h`
    a > b > c by h       one trend: a line through the scores over log2 of the size h is better at a than at c

A side is a sum of rows and numbers: `th24 - mh24 > th6 - mh6` compares two gaps. In a chain of one sign, every pair of
neighbours is a part. If a budget lacks some of the rows, the remaining sides become neighbours. The steps of a trend
are shown beside it but decide nothing, because neighbours in published tables often differ by less than their noise.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.statistics.comparison import Relation

IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
TREND = re.compile(rf"(.*\S)\s+by\s+({IDENTIFIER})\s*")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TERM = rf"(?:{IDENTIFIER}|{NUMBER.pattern})"
SIGNS = (">", ">~", "~", "=")
SIDE = re.compile(rf"\s*-?\s*{TERM}(?:\s*[+-]\s*{TERM})*\s*")
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}

Side = dict[str, int]  # row -> how often it is added
RowSizes = Mapping[str, object]  # name -> size of a row


@dataclass(frozen=True)
class Inequality:
    """One comparison of a claim: two sums of rows and the sign between them."""

    left: str
    relation: Relation
    right: str

    steps = ()  # it is a single step

    def contrast(self, sizes: Mapping[str, RowSizes]) -> Side:
        """Left less right, of `=` the left side alone: row -> factor, whatever the sizes."""
        factors = dict(side(self.left))
        for row, factor in side(self.right).items() if self.relation != "=" else ():
            factors[row] = factors.get(row, 0) - factor
        return {row: factor for row, factor in factors.items() if factor}

    @property
    def constant(self) -> float:
        """The numbers on the left less those on the right."""
        return _constant(self.left) - (_constant(self.right) if self.relation != "=" else 0.0)

    @property
    def rows(self) -> list[str]:
        """The rows that it compares."""
        return list(self.contrast({}))

    @property
    def beaten(self) -> list[str]:
        """The rows that must not get better if it is to hold: of sameness all."""
        return [row for row, factor in self.contrast({}).items() if factor < 0 or self.relation == "~"]

    def written(self, better: Literal["<", ">"], margin: float) -> str:
        """The comparison as a formula of scores. better: `<` if lower scores are better. margin: in their unit."""
        if self.relation == "~":
            return f"|{_sum(self.left)} - {_sum(self.right)}| < margin {margin:g}"
        slack = f" {'+' if better == '<' else '-'} margin {margin:g}" if self.relation == ">~" else ""
        return f"{self.left} {better} {self.right}{slack}"

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class Trend:
    """One comparison over several sides: the line through them over log2 of a size is better at the first."""

    sides: tuple[str, ...]
    size: str  # its name among the sizes of a row

    relation: Relation = ">"

    constant = 0.0  # its sides are rows

    @property
    def rows(self) -> list[str]:
        """The rows that it is fitted to."""
        return list(dict.fromkeys(row for each in self.sides for row in side(each)))

    @property
    def beaten(self) -> list[str]:
        """The rows of its ends that must not get better if it is to hold; of those between, it depends on the sizes."""
        first, last = side(self.sides[0]), side(self.sides[-1])
        return [
            *(row for row, factor in first.items() if factor < 0), *(row for row, factor in last.items() if factor > 0)
        ]  # fmt: skip

    @property
    def steps(self) -> tuple[Inequality, ...]:
        """Its neighbouring sides, compared."""
        return tuple(Inequality(left, ">", right) for left, right in pairwise(self.sides))

    def contrast(self, sizes: Mapping[str, RowSizes]) -> dict[str, float]:
        """Row -> factor: their sum is the fitted line at the first side less the line at the last.

        Least squares over x = log2 of the size: the slope is sum (x_i - mean x) y_i / sum (x_i - mean x)^2. The rows of
        a side may differ in the size if they do so in the same proportion in every side, which then counts with the
        smallest. Raises Mistake if they differ otherwise, and if the first and the last side do not differ.
        """
        of_sides = [self._logarithms(each, sizes) for each in self.sides]
        places = [min(of_side) for of_side in of_sides]
        proportions = {frozenset(round(each - min(of_side), 9) for each in of_side) for of_side in of_sides}
        if len(proportions) > 1:
            raise Mistake(f"{self}: the rows of a side differ in {self.size}, not in the same proportion in every side")
        mean = sum(places) / len(places)
        squares = sum((place - mean) ** 2 for place in places)
        if places[0] == places[-1]:
            raise Mistake(f"{self}: the first and the last side do not differ in {self.size}")
        factors: dict[str, float] = {}
        for each, place in zip(self.sides, places, strict=True):
            weight = (place - mean) / squares * (places[0] - places[-1])
            for row, factor in side(each).items():
                factors[row] = factors.get(row, 0.0) + weight * factor
        largest = max(map(abs, factors.values()))
        # where a row has no weight, rounding may leave a tiny one
        return {row: factor for row, factor in factors.items() if abs(factor) > 1e-9 * largest}

    def written(self, better: Literal["<", ">"], margin: float) -> str:
        """The comparison as a formula of scores. better: `<` if lower scores are better. margin: in their unit."""
        return f" {better} ".join(self.sides) + f", fitted over log2 {self.size}"

    def __str__(self) -> str:
        return f"{' > '.join(self.sides)} by {self.size}"

    def _logarithms(self, text: str, sizes: Mapping[str, RowSizes]) -> list[float]:
        logarithms = []
        for row in side(text):
            size = sizes[row].get(self.size)
            if not isinstance(size, int | float) or size <= 0:
                known = [name for name, value in sizes[row].items() if isinstance(value, int | float)]
                meant = did_you_mean(self.size, known)
                raise Mistake(f"{self}: the row {row} has no size {self.size}{meant}; it has {', '.join(known)}")
            logarithms.append(math.log2(size))
        return logarithms


Statement = Inequality | Trend


def parse(sentence: str, present: Mapping[str, object] | None = None) -> list[Statement]:
    """The comparisons of a sentence, of the rows that are `present` (None: of all). Raises ValueError."""
    if wrong := [sign for sign in re.findall("[<>=~!]+", sentence) if sign not in SIGNS]:
        raise ValueError(f"{sentence!r}: there is no sign {wrong[0]}; write >, >~, ~ or =, with what is better first")
    if trend := TREND.fullmatch(sentence):
        return _trend(trend[1], trend[2], sentence, present)
    if "=" in sentence:
        left, _, right = sentence.partition("=")
        _check_arithmetic(right, sentence)
        parts = [Inequality(_one_side(left, sentence), "=", right.strip())]
    else:
        sides, relation = _chain(sentence, sentence)
        parts = [Inequality(left, relation, right) for left, right in pairwise(_present_sides(sides, present))]
    if present is None and (empty := [str(part) for part in parts if not part.rows]):
        raise ValueError(f"{sentence!r}: {empty[0]!r} is not a comparison of rows")
    return [part for part in parts if part.rows and (present is None or set(part.rows) <= set(present))]


def side(text: str) -> Side:
    """The rows of a sum: `a + b - c + 0.5` as {a: 1, b: 1, c: -1}."""
    factors: Side = {}
    for factor, term in _terms(text):
        if not NUMBER.fullmatch(term):
            factors[term] = factors.get(term, 0) + factor
    return factors


def _sum(text: str) -> str:
    return f"({text})" if " " in text else text


def _constant(text: str) -> float:
    """The numbers of a sum, added: 0.5 of `a + b - c + 0.5`."""
    return math.fsum(factor * float(term) for factor, term in _terms(text) if NUMBER.fullmatch(term))


def _terms(text: str) -> list[tuple[int, str]]:
    return [(-1 if sign == "-" else 1, term) for sign, term in re.findall(rf"([+-]?)\s*({TERM})", text)]


def arithmetic(expression: str, sizes: Mapping[str, object]) -> float:
    """The value of sums and products of numbers and of the named sizes. Raises Mistake for an unknown name."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, int | float)
            return node.value
        if isinstance(node, ast.Name):
            size = sizes.get(node.id)
            if not isinstance(size, int | float):
                raise Mistake(f"{expression!r}: there is no size {node.id!r}; there are: {', '.join(sizes)}")
            return size
        assert isinstance(node, ast.BinOp)
        return ARITHMETIC[type(node.op)](value(node.left), value(node.right))

    return value(ast.parse(expression.strip(), mode="eval").body)


def _trend(chain: str, size: str, sentence: str, present: Mapping[str, object] | None) -> list[Statement]:
    sides, relation = _chain(chain, sentence)
    if relation != ">":
        raise ValueError(f"{sentence!r}: a trend is written with > between its sides")
    if any(NUMBER.fullmatch(term) for each in sides for _, term in _terms(each)):
        raise ValueError(f"{sentence!r}: a trend is a comparison of rows, without numbers")
    sides = _present_sides(sides, present)
    return [Trend(tuple(sides), size)] if len(sides) > 1 else []


def _chain(text: str, sentence: str) -> tuple[list[str], Relation]:
    pieces = re.split(r"(>~|>|~)", text)
    sides = [_one_side(piece, sentence) for piece in pieces[::2]]
    relations = set(pieces[1::2])
    if len(sides) < 2:
        raise ValueError(f"{sentence!r}: is not a comparison; write rows with >, >~, ~ or = between them")
    if len(relations) > 1:
        raise ValueError(f"{sentence!r}: a chain has more than one of >, >~ and ~; write a sentence for each")
    return sides, cast(Relation, relations.pop())


def _present_sides(sides: list[str], present: Mapping[str, object] | None) -> list[str]:
    return [each for each in sides if present is None or set(side(each)) <= set(present)]


def _one_side(text: str, sentence: str) -> str:
    if not SIDE.fullmatch(text):
        raise ValueError(f"{sentence!r}: {text.strip()!r} is not a sum of rows")
    return text.strip()


def _check_arithmetic(text: str, sentence: str) -> None:
    allowed = (ast.BinOp, ast.Name, ast.Load, ast.Constant, *ARITHMETIC)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{sentence!r}: {text.strip()!r} is not arithmetic") from None
    if wrong := [type(node).__name__ for node in ast.walk(tree) if not isinstance(node, allowed)]:
        raise ValueError(f"{sentence!r}: {text.strip()!r} has more than sums and products ({wrong[0]})")
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    if wrong := [repr(value) for value in constants if type(value) not in (int, float)]:
        raise ValueError(f"{sentence!r}: {text.strip()!r} is not arithmetic ({wrong[0]} is no number)")
