"""The verdict on a claim: `holds`, `fails` or `not resolved`, from differences paired by seed, and never from a sign.

A part is tested by Student's t on its differences, one a seed. A claim holds if all its parts do and fails if one does
(their p-values together: the worst, or Bonferroni's). Over the claims of a table Holm's correction keeps the chance of
one wrong verdict below 5%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from experiments.tables.definition.inequality import Part, arithmetic, parse
from experiments.tables.definition.table import Budget, Claim
from experiments.tables.verdicts.statistics import (
    FEW,
    LEVEL,
    MOST_SEEDS,
    NOTHING,
    Interval,
    Test,
    bootstrap_interval,
    equivalent,
    holm,
    positive,
    seeds_to_show,
    t_interval,
    together,
    two_sided,
)

Word = Literal["holds", "fails", "not resolved"]
ALLOWED = 1 - LEVEL  # chance of a wrong verdict in a table
# row -> seed -> number
Numbers = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class PartFinding:
    """One comparison. `differences` by seed are left less right; of step times the log of their ratio."""

    sentence: str
    differences: dict[int, float]
    test: Test
    distance: Callable[[float], float] = lambda mean: mean  # of a mean from what `holds` excludes, negative beyond it
    sides: int = 1  # on which `fails` may lie: 2 of an equivalence
    exact: bool = False  # a comparison of numbers that are not measured

    @property
    def values(self) -> list[float]:
        """The differences in the order of the seeds."""
        return list(self.differences.values())

    @property
    def mean(self) -> float | None:
        """Mean difference; None without a pair."""
        return float(np.mean(self.values)) if self.values else None

    @property
    def interval(self) -> Interval | None:
        """95% t interval of the mean; None where there is no spread, or none is needed."""
        return None if self.exact else t_interval(self.values)

    @property
    def bootstrap(self) -> Interval | None:
        """95% bootstrap interval of the mean, where the pairs are few."""
        return bootstrap_interval(self.values) if not self.exact and len(self.values) < FEW else None


@dataclass(frozen=True)
class Verdict:
    """What was decided on a claim, and by which comparisons."""

    key: str
    claim: Claim
    parts: list[PartFinding]
    left_out: list[str]  # sentences, or terms of one, that this budget has no rows for
    word: Word
    p: float  # two-sided, of the claim by itself
    adjusted: float  # by Holm, beside the table's other claims
    why: str  # of `not resolved`: what would resolve it


@dataclass(frozen=True)
class Measures:
    """What claims can be about, by row and seed. `sizes`: what arithmetic may name, by row."""

    score: Numbers
    step_time: Numbers  # seconds a token
    parameters: Numbers
    sizes: Mapping[str, Mapping[str, object]]


def decide(
    claims: Mapping[str, Claim], budget: Budget, present: Mapping[str, object], measures: Measures
) -> list[Verdict]:
    """A verdict on every claim of which the budget has rows."""
    tried = {key: _parts(claim, budget, present, measures) for key, claim in claims.items()}
    tests = {key: together([part.test for part in parts]) for key, parts in tried.items()}
    # a claim that can't be tried here takes no share of the allowed errors
    family = [key for key, parts in tried.items() if parts]
    adjusted = dict(zip(family, holm([two_sided(tests[key]) for key in family]), strict=True))
    return [
        _verdict(key, claim, tried[key], tests[key], adjusted.get(key, 1.0), len(family), present)
        for key, claim in claims.items()
    ]


def _verdict(
    key: str, claim: Claim, parts: list[PartFinding], test: Test, adjusted: float, family: int,
    present: Mapping[str, object],
) -> Verdict:  # fmt: skip
    word: Word = "not resolved"
    if parts and adjusted <= ALLOWED:
        word = "holds" if test.holds < test.fails else "fails"
    why = _what_would_resolve(parts, test, adjusted, family) if word == "not resolved" else ""
    left_out = [sentence for sentence in claim.parts if len(parse(sentence)) > len(parse(sentence, present))]
    return Verdict(key, claim, parts, left_out, word, two_sided(test), adjusted, why)


def _parts(claim: Claim, budget: Budget, present: Mapping[str, object], measures: Measures) -> list[PartFinding]:
    parts = [part for sentence in claim.parts for part in parse(sentence, present)]
    if claim.of == "score":
        return [_score_part(part, budget, measures) for part in parts]
    if claim.of == "step_time":
        return [_time_part(part, measures) for part in parts]
    return [_exact_part(part, measures) for part in parts]


def _score_part(part: Part, budget: Budget, measures: Measures) -> PartFinding:
    differences = _contrast(part, measures.score, lambda value: value)
    values = list(differences.values())
    margin = budget.margin if part.has_margin else 0.0
    assert margin is not None
    if part.relation == "~":
        test = equivalent(values, margin) if values else NOTHING
        sentence = f"{budget.score_name}: |{_sum(part.left)} - {_sum(part.right)}| < {margin:g}"
        return PartFinding(sentence, differences, test, lambda mean: margin - abs(mean), sides=2)
    sense, sign, slack = (-1, "<", " + ") if budget.better == "lower" else (1, ">", " - ")
    test = positive([sense * value + margin for value in values]) if values else NOTHING
    sentence = f"{budget.score_name}: {part.left} {sign} {part.right}" + (f"{slack}{margin:g}" if margin else "")
    return PartFinding(sentence, differences, test, lambda mean: sense * mean + margin)


def _time_part(part: Part, measures: Measures) -> PartFinding:
    differences = _contrast(part, measures.step_time, math.log)
    test = positive(list(differences.values())) if differences else NOTHING
    return PartFinding(f"log step time: {part.left} > {part.right}", differences, test)


def _exact_part(part: Part, measures: Measures) -> PartFinding:
    differences = _contrast(part, measures.parameters, lambda value: value)
    right = arithmetic(part.right, measures.sizes[part.rows[0]]) if part.relation == "=" else None
    sentence = f"parameters: {part.left} {part.relation} {part.right}" + (f" = {right:g}" if right is not None else "")
    if not differences:
        return PartFinding(sentence, differences, NOTHING, exact=True)
    so = all(value == right if right is not None else value > 0 for value in differences.values())
    return PartFinding(sentence, differences, Test(0.0, 1.0) if so else Test(1.0, 0.0), exact=True)


def _contrast(part: Part, numbers: Numbers, scale: Callable[[float], float]) -> dict[int, float]:
    """The contrast of every seed that has all of its rows."""
    seeds = set.intersection(*(set(numbers.get(row, {})) for row in part.rows))
    return {
        seed: sum(factor * scale(numbers[row][seed]) for row, factor in part.contrast.items()) for seed in sorted(seeds)
    }


def _sum(text: str) -> str:
    return f"({text})" if " " in text else text


def _what_would_resolve(parts: list[PartFinding], test: Test, adjusted: float, family: int) -> str:
    if not parts:
        return "this budget has none of its rows side by side"
    if unpaired := [part.sentence for part in parts if not part.values]:
        return f"no seed has all the rows of {unpaired[0]}"
    fewest = min(len(part.values) for part in parts if not part.exact)
    if fewest == 1:
        return "one seed has no spread, and resolves nothing: give --seeds 3 or more"
    if two_sided(test) <= ALLOWED:
        return f"p = {two_sided(test):.2g} by itself, but {adjusted:.2g} beside the table's other claims" + _more(
            _seeds(parts, family), fewest
        )
    return "the interval doesn't decide it" + _more(_seeds(parts, family), fewest)


def _more(needed: int | None, have: int) -> str:
    if needed is None:
        return f"; at this mean and spread no number of seeds up to {MOST_SEEDS:,} would"
    return (
        f"; at this mean and spread about {max(needed, have + 1)} seeds would resolve it, {max(needed - have, 1)} more"
    )


def _seeds(parts: list[PartFinding], family: int) -> int | None:
    """Seeds that would resolve a claim beside so many others, if means and spreads stay: the fewer of either way."""
    level = ALLOWED / 2 / family
    to_hold = [_seeds_to_hold(part, level) for part in parts]
    to_fail = [need for part in parts if (need := _seeds_to_fail(part, level / len(parts))) is not None]
    ways = [*to_fail, *([max(need for need in to_hold if need is not None)] if None not in to_hold else [])]
    return min(ways, default=None)


def _seeds_to_hold(part: PartFinding, level: float) -> int | None:
    if part.exact:
        return 2 if part.test.holds == 0 else None
    return seeds_to_show(part.distance(float(np.mean(part.values))), float(np.std(part.values, ddof=1)), level)


def _seeds_to_fail(part: PartFinding, level: float) -> int | None:
    if part.exact:
        return 2 if part.test.fails == 0 else None
    beyond = -part.distance(float(np.mean(part.values)))
    return seeds_to_show(beyond, float(np.std(part.values, ddof=1)), level / part.sides)
