"""The verdict on a claim: one of six words, decided by the interval of differences paired by seed.

    holds           the interval lies on the claimed side of 0 (for sameness: within the margin)
    reversed        it lies on the other side, and not wholly within the margin
    no difference   it lies wholly within the margin
    not resolved    none of these yet
    depends         the claim is resolved under each scheme of positions, with different verdicts
    not tested      a cell that the claim needs cannot decide it here, or does not exist

Over the claims of a table, under all its schemes of positions, Holm's correction keeps the chance of one wrong verdict
below 5%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.failures.wording import joined, plural
from experiments.statistics.comparison import (
    AnyComparison,
    Compared,
    Exact,
    MarkKind,
    Word,
    claim_p_value,
    claim_seeds,
    claim_word,
    half_width,
)
from experiments.statistics.evidence import ALPHA, MOST_SEEDS, Anytime, Evidence, Waiting
from experiments.statistics.holm import holm_levels
from experiments.statistics.plateau import marks
from experiments.tables.definition.inequality import Inequality, Statement, arithmetic
from experiments.tables.definition.table import Budget, Claim
from experiments.tables.marks import untuned_marks

TIME_MARGIN = 0.02  # for the log of a ratio of step times: the bench cannot resolve less, even on a quiet machine
SAME = "means and spreads stay the same"
# row -> seed -> number
Numbers = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Measures:
    """The numbers that claims can be about, by row and seed, under one scheme of positions."""

    score: Numbers
    step_time: Numbers  # seconds of one step, by round of the bench
    parameters: Numbers
    sizes: Mapping[str, Mapping[str, object]]  # sizes that trends and arithmetic may name, by row
    stuck: Mapping[str, Mapping[MarkKind, str]] = field(default_factory=dict)  # row -> why it may decide no claim
    late_gain: Mapping[str, float] = field(default_factory=dict)  # row -> gain of the last tenth of the training
    untuned: Collection[str] = ()  # rows whose learning rate was not tuned


@dataclass(frozen=True)
class Finding:
    """The decision on a claim under one scheme of positions."""

    comparisons: list[AnyComparison]
    word: Word
    level: float  # level at which it was decided, or would be beside the table's other claims
    why: str  # of `not resolved` and `not tested`


@dataclass(frozen=True)
class Verdict:
    """The decision on a claim, with its comparisons under each scheme of positions."""

    key: str
    claim: Claim
    findings: dict[str, Finding]  # by scheme; a table without schemes has one with the name ""
    left_out: list[str]  # rows of the claim that this budget lacks

    @property
    def word(self) -> Word:
        """The verdict that all schemes share; `depends` if they are resolved and differ."""
        words = [finding.word for finding in self.findings.values()]
        for unresolved in ("not tested", "not resolved"):
            if unresolved in words:
                return unresolved
        return words[0] if len(set(words)) == 1 else "depends"

    def can_hold(self, scheme: str) -> bool:
        """Whether the budget has enough of its comparisons."""
        return _are_enough(self.findings[scheme].comparisons, self.claim)

    @property
    def why(self) -> str:
        """The reason why the claim is not resolved or not tested, by scheme."""
        whys = {scheme: finding.why for scheme, finding in self.findings.items() if finding.why}
        return "; ".join(f"{scheme}: {why}" if scheme else why for scheme, why in whys.items())


def decide(
    claims: Mapping[str, Claim],
    budget: Budget,
    present: Mapping[str, object],
    measures: Mapping[str, Measures],
    evidence: Evidence | None = None,
) -> list[Verdict]:
    """A verdict on every claim.

    Args:
        claims: the table's claims by their keys.
        budget: defines the score, its direction and the margins.
        present: the rows that the budget has.
        measures: the numbers under each scheme of positions; a table without schemes has one with the name "".
        evidence: anytime-valid unless the seeds were planned.
    """
    evidence = evidence or Anytime()
    compared = {
        (key, scheme): _compare(claim, budget, present, of_scheme, evidence)
        for key, claim in claims.items()
        for scheme, of_scheme in _schemes(claim, measures).items()
    }
    # a claim without rows here takes no share of the allowed error
    family = [place for place, comparisons in compared.items() if comparisons]
    levels = dict(zip(family, holm_levels([claim_p_value(compared[place]) for place in family]), strict=True))
    undecided = sum(level == 0 for level in levels.values())
    verdicts = []
    for key, claim in claims.items():
        findings = {
            scheme: _finding(claim, compared[key, scheme], levels.get((key, scheme), 0.0), ALPHA / max(1, undecided))
            for scheme in _schemes(claim, measures)
        }
        rows = dict.fromkeys(row for part in claim.parsed() for row in part.rows)
        verdicts.append(Verdict(key, claim, findings, [row for row in rows if row not in present]))
    return verdicts


def _schemes(claim: Claim, measures: Mapping[str, Measures]) -> dict[str, Measures]:
    """The schemes under which a claim is decided. Only scores depend on positions."""
    return dict(measures) if claim.of == "score" else {"": next(iter(measures.values()))}


def _finding(claim: Claim, comparisons: list[AnyComparison], level: float, next_level: float) -> Finding:
    if not comparisons:
        return Finding(comparisons, "not tested", 0.0, "this budget has the rows of none of its comparisons")
    word = claim_word(comparisons, level)
    level = level or next_level
    if word == "not tested":
        every_mark = dict.fromkeys(mark for comparison in comparisons for mark in comparison.marks)
        return Finding(comparisons, word, level, "; ".join(map(str, every_mark)))
    if word == "holds" and not _are_enough(comparisons, claim):
        why = f"this budget has the rows of {len(comparisons)} of its {len(claim.parsed())} comparisons"
        return Finding(comparisons, "not tested", level, why)
    why = _what_would_resolve(claim, comparisons, level) if word == "not resolved" else ""
    return Finding(comparisons, word, level, why)


def _are_enough(comparisons: Sequence[AnyComparison], claim: Claim) -> bool:
    """Whether they are at least half of a claim's comparisons, without which it does not hold."""
    return 2 * len(comparisons) >= len(claim.parsed())


def _compare(
    claim: Claim, budget: Budget, present: Mapping[str, object], measures: Measures, evidence: Evidence
) -> list[AnyComparison]:
    parts = claim.parts_at(present)
    if claim.of == "score":
        return [_score(part, claim, budget, measures, evidence) for part in parts]
    if claim.of == "step_time":
        return [_step_time(part, measures, evidence) for part in parts]
    return [_parameters(part, measures) for part in parts if isinstance(part, Inequality)]


def _score(part: Statement, claim: Claim, budget: Budget, measures: Measures, evidence: Evidence) -> Compared:
    sense = -1 if budget.better == "lower" else 1
    margin = budget.margin_of(part).value
    # for a loss, the better side is less
    written = part.written("<" if budget.better == "lower" else ">", margin)
    contrasts = _differences(part, measures.score, measures, lambda value: value)
    differences = {seed: contrast + part.constant for seed, contrast in contrasts.items()}
    made = Compared(
        f"{budget.score_name}: {written}", part.relation, differences, sense, margin,
        part.rows, evidence, steps=[_score(step, claim, budget, measures, evidence) for step in part.steps],
    )  # fmt: skip
    # a cell that fails to train is what a claim of failure is about
    exempt = claim.of_failure and part.relation == ">"
    learned_too_little = [] if exempt else marks(made, measures.stuck, measures.late_gain)
    return replace(
        made, marks=learned_too_little + untuned_marks(made, part.contrast(measures.sizes), measures.untuned)
    )


def _step_time(part: Statement, measures: Measures, evidence: Evidence) -> Compared:
    differences = _differences(part, measures.step_time, measures, math.log)
    return Compared(f"log step time: {part}", part.relation, differences, 1, TIME_MARGIN, part.rows, evidence)


def _parameters(part: Inequality, measures: Measures) -> Exact:
    differences = _differences(part, measures.parameters, measures, lambda value: value)
    right = arithmetic(part.right, measures.sizes[part.rows[0]]) if part.relation == "=" else None
    sentence = f"parameters: {part}" + (f" = {right:g}" if right is not None else "")
    is_true = all(value == right if right is not None else value > 0 for value in differences.values())
    return Exact(sentence, differences, is_true, part.rows)


def _differences(
    part: Statement, numbers: Numbers, measures: Measures, scale: Callable[[float], float]
) -> dict[int, float]:
    """The contrast for every seed that has all of its rows."""
    seeds = set.intersection(*(set(numbers.get(row, {})) for row in part.rows))
    factors = part.contrast(measures.sizes)
    return {seed: sum(factor * scale(numbers[row][seed]) for row, factor in factors.items()) for seed in sorted(seeds)}


def _what_would_resolve(claim: Claim, comparisons: Sequence[AnyComparison], level: float) -> str:
    """The comparisons that are undecided, and how many more seeds or rounds would decide the claim."""
    unit = claim.paired_by
    if unpaired := [_formula(comparison) for comparison in comparisons if not comparison.values]:
        which = joined(unpaired) if len(unpaired) < len(comparisons) else "any comparison"
        return f"no {unit} has all the rows of {which}"
    undecided = [comparison for comparison in comparisons if comparison.word(level) != "holds"]
    if any(isinstance(each, Compared) and isinstance(each.evidence, Waiting) for each in undecided):
        return "its plan is not complete"
    is_or_are = f"{plural('comparison', len(undecided))} {'is' if len(undecided) == 1 else 'are'}"
    named = f"the undecided {is_or_are} {joined([_undecided(comparison, unit) for comparison in undecided])}"
    fewest = min(len(comparison.values) for comparison in undecided)
    needed = claim_seeds(comparisons, level)
    if needed is None and fewest < 2:
        return f"{named}; give 4 {unit}s or more"
    if needed is None:
        return f"{named}; over {MOST_SEEDS:,} {unit}s would be needed if {SAME}"
    more = max(needed - fewest, 1)
    return f"{named}; about {more} {plural(unit, more)} more than these {fewest} would decide the claim if {SAME}"


def _undecided(comparison: AnyComparison, unit: str) -> str:
    """A comparison with half the width of its 95% interval."""
    half, alone = half_width(comparison), comparison.word()
    width = f"+-{half:.2g}" if math.isfinite(half) else f"too few {unit}s for an interval"
    corrected = "" if alone == "not resolved" else f", {alone} only without Holm's correction"
    return f"{_formula(comparison)} ({width}{corrected})"


def _formula(comparison: AnyComparison) -> str:
    return comparison.sentence.partition(": ")[2]
