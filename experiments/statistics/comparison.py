"""One comparison of a claim: its differences, paired by seed, and the verdict that they allow at a significance
level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from experiments.statistics.evidence import (
    ALPHA,
    MOST_SEEDS,
    Anytime,
    Evidence,
    Interval,
    fewest_seeds,
    interval,
    mean_and_deviation,
)

# left better than right; better, or worse by less than the margin; the same within the margin; exactly
Relation = Literal[">", ">~", "~", "="]
ClaimOutcome = Literal["holds", "reversed", "no difference"]
Word = Literal["holds", "reversed", "no difference", "not resolved", "depends", "not tested"]
# why a row may not decide: it diverged, ended at the plateau, had no evaluation before the last tenth of the steps,
# still learned in them, or had a learning rate that was not tuned
MarkKind = Literal["diverged", "plateau", "unknown gain", "late gain", "untuned"]
# outcomes are tried in this order: even a small difference of the claimed sign holds
ORDER: tuple[ClaimOutcome, ...] = ("holds", "no difference", "reversed")


@dataclass(frozen=True)
class Mark:
    """A reason why a row may not decide a comparison."""

    row: str
    kind: MarkKind
    why: str  # of the row, in words that follow its name

    def __str__(self) -> str:
        return f"{self.row} {self.why}"


@dataclass(frozen=True)
class Compared:
    """A comparison of measured numbers.

    `differences` are the left side minus the right side, by seed; for step times, the log of their ratio. `sense` is 1
    if a positive difference is on the claimed side, else -1.
    """

    metric: str  # what is compared, such as `validation_loss` or `log step time`
    formula: str  # the two sides and the sign between them
    relation: Relation
    differences: dict[int, float]
    sense: int
    margin: float
    rows: Sequence[str] = ()
    evidence: Evidence = field(default_factory=Anytime)
    marks: Sequence[Mark] = ()  # reasons why a cell may not decide it; empty: all may
    barred: Sequence[ClaimOutcome] = ()  # outcomes that a row may still undo; without marks, another one stands
    later: Sequence[Mark] = ()  # marks that it would have once it is resolved, if means and spreads stay the same
    steps: Sequence[Compared] = ()  # neighbours of a trend: shown, but they decide nothing

    @property
    def sentence(self) -> str:
        """The metric and the formula."""
        return f"{self.metric}: {self.formula}"

    @property
    def values(self) -> list[float]:
        """The differences in the order of the seeds."""
        return list(self.differences.values())

    @property
    def mean(self) -> float | None:
        """The mean difference; None without a pair."""
        return self._mean_and_deviation[0] if self.differences else None

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the mean; None if it is infinite."""
        return interval(self.evidence, self.values)

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None if it is infinite."""
        low_and_high = self.interval
        return None if low_and_high is None else (low_and_high[1] - low_and_high[0]) / 2

    def distance(self, outcome: ClaimOutcome) -> float:
        """How far the mean is from the nearest difference with which it would not have the outcome."""
        mean = self.mean or 0.0
        if self.relation == ">" and outcome != "no difference":
            return abs(mean)
        if self.relation == ">~":
            return abs(self.sense * mean + self.margin)
        return abs(abs(mean) - self.margin)

    def decided_by(self, stuck: Sequence[Mark], undoing: Callable[[ClaimOutcome], list[Mark]]) -> Compared:
        """This comparison with the marks of its rows.

        Args:
            stuck: the marks of rows that may not decide it at all.
            undoing: the marks of rows that may not decide it with an outcome, because they could still undo it.
        """
        undone = {outcome: marks for outcome in ORDER if (marks := undoing(outcome))}
        if not undone:
            return replace(self, marks=stuck)
        shown = self.shown()
        barred = [outcome for outcome in shown if outcome in undone]
        of_first = undone[shown[0]] if shown and barred == shown else []
        # the outlook takes longer than all the rest
        later = undone.get(self.outlook, []) if not shown and self.outlook else []
        return replace(self, marks=[*stuck, *of_first], barred=barred, later=later)

    def p_values(self) -> dict[ClaimOutcome, float]:
        """For each outcome, the p-value of the null hypothesis that it is false.

        The differences show an outcome at every level from its p-value on.
        """
        return self.p_values_with(len(self.differences))

    def p_values_with(self, count: int) -> dict[ClaimOutcome, float]:
        """The p-values of `count` differences of the same mean and deviation.

        They are 1 without a pair, with a mark, and for an outcome that is barred or that the relation cannot have.
        """
        p_values: dict[ClaimOutcome, float] = dict.fromkeys(ORDER, 1.0)
        if self.differences and not self.marks:
            p_values |= self._p_values(count, *self._mean_and_deviation) | dict.fromkeys(self.barred, 1.0)
        return p_values

    def word(self, level: float = ALPHA) -> Word:
        """The outcome that the differences show at a level; `not tested` if a cell may not decide."""
        if self.marks:
            return "not tested"
        return next(iter(self.shown(level)), "not resolved")

    def shown(self, level: float = ALPHA) -> list[ClaimOutcome]:
        """The outcomes that the differences show at a level: also two, if a difference is small and has a sign."""
        p_values = self.p_values()
        return [outcome for outcome in ORDER if p_values[outcome] <= level]

    def seeds_needed(self, level: float = ALPHA) -> int | None:
        """The number of seeds that resolves the comparison if mean and deviation stay the same.

        None for more than MOST_SEEDS, and for fewer than two pairs.
        """
        if len(self.differences) < 2:
            return None
        return fewest_seeds(len(self.differences), lambda count: min(self.p_values_with(count).values()) <= level)

    @cached_property
    def outlook(self) -> ClaimOutcome | None:
        """The outcome that added seeds show first, if mean and deviation stay the same; None for fewer than two."""
        if len(self.differences) < 2:
            return None
        added = replace(self, evidence=Anytime(), marks=())
        p_values = added.p_values_with(added.seeds_needed() or MOST_SEEDS)
        return min(p_values, key=lambda outcome: (p_values[outcome], ORDER.index(outcome)))

    @cached_property
    def _mean_and_deviation(self) -> tuple[float, float]:
        return mean_and_deviation(self.values)

    def _p_values(self, count: int, mean: float, deviation: float) -> dict[ClaimOutcome, float]:
        """The p-values of the outcomes that the relation can have."""

        def p_value(null: float) -> float:
            return self.evidence.p_value(count, mean, deviation, null)

        claimed = self.sense * mean
        if self.relation == ">":
            beside_zero = p_value(0.0)
            return {
                "holds": beside_zero if claimed > 0 else 1.0,
                "reversed": beside_zero if claimed < 0 else 1.0,
                "no difference": self._within(mean, p_value(-self.margin), p_value(self.margin)),
            }
        if self.relation == ">~":
            beside_margin = p_value(-self.sense * self.margin)
            return {
                "holds": beside_margin if claimed > -self.margin else 1.0,
                "reversed": beside_margin if claimed < -self.margin else 1.0,
            }
        edges = p_value(-self.margin), p_value(self.margin)
        # the nearer edge of the margin is the harder one to exclude, from outside as from inside
        return {"holds": self._within(mean, *edges), "reversed": max(edges) if abs(mean) > self.margin else 1.0}

    def _within(self, mean: float, *edges: float) -> float:
        """The p-value of the null hypothesis that the mean does not lie within the margin, from those of its edges.

        Both edges of the margin have to be excluded (Schuirmann 1987). A difference that is not significant is not a
        proof of equality.
        """
        return max(edges) if abs(mean) < self.margin else 1.0


@dataclass(frozen=True)
class Exact(Compared):
    """A comparison of numbers that are counted, not measured: any number of seeds shows whether it is true."""

    is_true: bool = field(kw_only=True)

    interval = None

    @property
    def mean(self) -> float | None:
        """The difference, which all seeds share; None if a row is missing."""
        return self.values[0] if self.values else None

    def _p_values(self, count: int, mean: float, deviation: float) -> dict[ClaimOutcome, float]:
        return {"holds": 0.0 if self.is_true else 1.0, "reversed": 1.0 if self.is_true else 0.0}


def claim_p_value(comparisons: Sequence[Compared]) -> float:
    """The level from which on the comparisons together decide their claim.

    Either all of them hold (intersection-union test: the largest p-value), or one contradicts the claim (Bonferroni
    over the comparisons). One with a mark does neither.
    """
    return _claim_p_value([comparison.p_values() for comparison in comparisons])


def claim_word(comparisons: Sequence[Compared], level: float) -> Word:
    """The verdict on a claim at a level: that all its comparisons hold, or else their worst outcome."""
    if not comparisons:
        return "not tested"
    p_values = [comparison.p_values() for comparison in comparisons]
    if all(of_one["holds"] <= level for of_one in p_values):
        return "holds"
    share = level / len(comparisons)
    shown = {next((word for word, p in _contradictions(of_one).items() if p <= share), None) for of_one in p_values}
    if "reversed" in shown:
        return "reversed"
    if "no difference" in shown:
        return "no difference"
    return "not tested" if any(comparison.marks for comparison in comparisons) else "not resolved"


def claim_seeds(comparisons: Sequence[Compared], level: float) -> int | None:
    """The number of seeds in all that decides the claim if seeds are added and all means and deviations stay the same.

    Added seeds are no planned ones, so the evidence is anytime-valid. A comparison with marks in `later` never decides.
    None for more than MOST_SEEDS, and if a comparison has fewer than two pairs.
    """
    fewest = min((len(comparison.values) for comparison in comparisons), default=0)
    if fewest < 2:
        return None
    anytime = [replace(each, evidence=Anytime(), marks=[*each.marks, *each.later]) for each in comparisons]
    # more seeds may undecide a claim, because a small difference no longer contradicts it once it holds
    counts = range(fewest, MOST_SEEDS + 1)
    p_values = (
        _claim_p_value([each.p_values_with(max(count, len(each.values))) for each in anytime]) for count in counts
    )
    return next((count for count, p_value in zip(counts, p_values, strict=True) if p_value <= level), None)


def _claim_p_value(p_values: Sequence[dict[ClaimOutcome, float]]) -> float:
    if not p_values:
        return 1.0
    contradicted = min(min(_contradictions(of_one).values()) for of_one in p_values)
    return min(max(of_one["holds"] for of_one in p_values), len(p_values) * contradicted, 1.0)


def _contradictions(p_values: dict[ClaimOutcome, float]) -> dict[ClaimOutcome, float]:
    """The p-values of the outcomes with which a comparison contradicts its claim, in the order in which they are tried.

    A small difference does not contradict the claim if its 95% interval shows the claimed sign.
    """
    no_difference = 1.0 if p_values["holds"] <= ALPHA else p_values["no difference"]
    return {"no difference": no_difference, "reversed": p_values["reversed"]}
