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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.failures.wording import joined, plural
from experiments.statistics.comparison import (
    ClaimOutcome,
    Compared,
    Exact,
    Mark,
    MarkKind,
    Word,
    claim_p_value,
    claim_seeds,
    claim_word,
)
from experiments.statistics.evidence import MOST_SEEDS, Anytime, Evidence, Waiting
from experiments.statistics.holm import holm_levels, next_level
from experiments.statistics.marks import late_marks, stuck_marks, untuned_marks
from experiments.tables.definition.inequality import Inequality, Statement, arithmetic
from experiments.tables.definition.table import Budget, Claim

TIME_MARGIN = 0.02  # for the log of a ratio of step times: the bench cannot resolve less, even on a quiet machine
SAME = "means and spreads stay the same"
UNDECIDED: tuple[Word, ...] = ("not tested", "not resolved")  # the first of them is the verdict of all schemes
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
class Judged:
    """The comparisons of a claim under one scheme of positions, and the word that they allow."""

    comparisons: list[Compared]
    word: Word
    level: float  # at which it was decided, or would be beside the table's other claims

    @property
    def undecided(self) -> list[Compared]:
        """The comparisons that do not hold yet."""
        return [comparison for comparison in self.comparisons if comparison.word(self.level) != "holds"]


@dataclass(frozen=True)
class Outlook(Judged):
    """What added seeds would lead to, if means and spreads stay the same.

    Added seeds end a plan, so the evidence of all comparisons is anytime-valid.
    """

    seeds: int | None  # in all, that decide the claim; None: over MOST_SEEDS, too few pairs, or never
    marks: Sequence[Mark]  # reasons why no number of seeds decides it
    lacks_rows: bool  # no number of seeds decides it, because it could not hold without further rows

    @property
    def have(self) -> int:
        """The seeds of the undecided comparison that has the fewest."""
        return min((len(comparison.values) for comparison in self.undecided), default=0)

    @property
    def more(self) -> int | None:
        """The number of further seeds; None where `seeds` is None."""
        return None if self.seeds is None else max(self.seeds - self.have, 1)

    @property
    def can_decide(self) -> bool:
        """Whether seeds alone may decide the claim, as far as is known, or it is decided."""
        return self.word not in UNDECIDED or (self.word == "not resolved" and not self.marks and not self.lacks_rows)


@dataclass(frozen=True)
class Finding(Judged):
    """The decision on a claim under one scheme of positions."""

    why: str  # of `not resolved` and `not tested`
    outlook: Outlook


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
        for undecided in UNDECIDED:
            if undecided in words:
                return undecided
        return words[0] if len(set(words)) == 1 else "depends"

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
    unchosen: int = 0,
) -> list[Verdict]:
    """A verdict on every claim.

    Args:
        claims: the table's claims by their keys.
        budget: defines the score, its direction and the margins.
        present: the rows that the budget has.
        measures: the numbers under each scheme of positions; a table without schemes has one with the name "".
        evidence: anytime-valid unless the seeds were planned.
        unchosen: the number of verdicts on other claims, which may take their share of the allowed error.
    """

    def judge(evidence: Evidence) -> dict[tuple[str, str], Judged]:
        compared = {
            (key, scheme): _compare(claim, budget, present, of_scheme, evidence)
            for key, claim in claims.items()
            for scheme, of_scheme in _schemes(claim, measures).items()
        }
        return _judge(compared, claims, counting(unchosen, evidence))

    evidence = evidence or Anytime()
    judged = judge(evidence)
    added = judged if isinstance(evidence, Anytime) else judge(Anytime())
    verdicts = []
    for key, claim in claims.items():
        findings = {
            scheme: _finding(
                claim, judged[key, scheme], added[key, scheme], f"under {scheme} positions" if scheme else ""
            )
            for scheme in _schemes(claim, measures)
        }
        verdicts.append(Verdict(key, claim, findings, [row for row in claim.rows if row not in present]))
    return verdicts


def counting(unchosen: int, evidence: Evidence) -> int:
    """How many of the verdicts on claims that were not chosen take their share of the allowed error: all, unless the
    seeds were planned, because a plan is for its claims alone.
    """
    return unchosen if isinstance(evidence, Anytime) else 0


def _judge(
    compared: Mapping[tuple[str, str], list[Compared]], claims: Mapping[str, Claim], others: int
) -> dict[tuple[str, str], Judged]:
    # a claim without rows here takes no share of the allowed error
    family = [place for place, comparisons in compared.items() if comparisons]
    p_values = [claim_p_value(compared[place]) for place in family]
    # the p-values of the other verdicts are not known; with 1, the correction is the strictest
    levels = holm_levels([*p_values, *others * [1.0]])
    level_of = dict(zip(family, levels, strict=False))
    judged = {}
    for place, comparisons in compared.items():
        level = level_of.get(place, 0.0)
        word = claim_word(comparisons, level) if comparisons else "not tested"
        if word == "holds" and not _are_enough(comparisons, claims[place[0]]):
            word = "not tested"
        judged[place] = Judged(comparisons, word, (level or next_level(levels)) if comparisons else 0.0)
    return judged


def _schemes(claim: Claim, measures: Mapping[str, Measures]) -> dict[str, Measures]:
    """The schemes under which a claim is decided. One on costs, which are not about positions, takes the first."""
    return dict(measures) if claim.of == "score" else {"": next(iter(measures.values()))}


def _finding(claim: Claim, judged: Judged, added: Judged, where: str) -> Finding:
    outlook = _outlook(claim, added)
    why = ""
    if judged.word == "not tested":
        marks = [mark for comparison in judged.comparisons for mark in comparison.marks]
        why = reasons(marks) or _rows_are_missing(claim, judged.comparisons)
    elif judged.word == "not resolved":
        why = _what_would_resolve(claim, judged, outlook, where)
    return Finding(judged.comparisons, judged.word, judged.level, why, outlook)


def _outlook(claim: Claim, added: Judged) -> Outlook:
    comparisons = added.comparisons
    # one of these decides the claim whatever the others show
    contradicts = any(each.outlook != "holds" and not each.marks and not each.later for each in comparisons)
    later = [] if contradicts else [*dict.fromkeys(mark for each in comparisons for mark in each.later)]
    lacks_rows = not contradicts and not _are_enough(comparisons, claim)
    return Outlook(comparisons, added.word, added.level, claim_seeds(comparisons, added.level), later, lacks_rows)


def _rows_are_missing(claim: Claim, comparisons: Sequence[Compared]) -> str:
    if not comparisons:
        return "this budget has the rows of none of its comparisons"
    return f"this budget has the rows of {len(comparisons)} of its {len(claim.parsed())} comparisons"


def _are_enough(comparisons: Sequence[Compared], claim: Claim) -> bool:
    """Whether they are at least half of a claim's comparisons, without which it does not hold."""
    return 2 * len(comparisons) >= len(claim.parsed())


def _compare(
    claim: Claim, budget: Budget, present: Mapping[str, object], measures: Measures, evidence: Evidence
) -> list[Compared]:
    parts = claim.parts_at(present)
    if claim.of == "score":
        return [_score(part, claim, budget, measures, evidence) for part in parts]
    if claim.of == "step_time":
        return [_step_time(part, measures) for part in parts]
    return [_parameters(part, measures) for part in parts if isinstance(part, Inequality)]


def _score(part: Statement, claim: Claim, budget: Budget, measures: Measures, evidence: Evidence) -> Compared:
    margin = budget.margin_of(part).value
    # for a loss, the better side is less
    written = part.written("<" if budget.better == "lower" else ">", margin)
    contrasts = _differences(part, measures.score, measures, lambda value: value)
    differences = {seed: contrast + part.constant for seed, contrast in contrasts.items()}
    made = Compared(
        budget.score_name, written, part.relation, differences, budget.sense, margin, part.rows, evidence,
        steps=[_score(step, claim, budget, measures, evidence) for step in part.steps],
    )  # fmt: skip
    # a cell that fails to train is what a claim of failure is about
    exempt = claim.of_failure and part.relation == ">"
    factors = part.contrast(measures.sizes)

    def undoing(outcome: ClaimOutcome) -> list[Mark]:
        late = [] if exempt else late_marks(made, outcome, factors, measures.late_gain)
        return late + untuned_marks(made, outcome, factors, measures.untuned)

    return made.decided_by([] if exempt else stuck_marks(made.rows, measures.stuck), undoing)


def _step_time(part: Statement, measures: Measures) -> Compared:
    # a plan is one of seeds, and not of the bench's rounds
    differences = _differences(part, measures.step_time, measures, math.log)
    return Compared("log step time", str(part), part.relation, differences, 1, TIME_MARGIN, part.rows, Anytime())


def _parameters(part: Inequality, measures: Measures) -> Exact:
    differences = _differences(part, measures.parameters, measures, lambda value: value)
    right = arithmetic(part.right, measures.sizes[part.rows[0]]) if part.relation == "=" else None
    formula = str(part) + (f" = {right:g}" if right is not None else "")
    is_true = all(value == right if right is not None else value > 0 for value in differences.values())
    return Exact("parameters", formula, part.relation, differences, 1, 0.0, part.rows, is_true=is_true)


def _differences(
    part: Statement, numbers: Numbers, measures: Measures, scale: Callable[[float], float]
) -> dict[int, float]:
    """The contrast for every seed that has all of its rows."""
    seeds = set.intersection(*(set(numbers.get(row, {})) for row in part.rows))
    factors = part.contrast(measures.sizes)
    return {seed: sum(factor * scale(numbers[row][seed]) for row, factor in factors.items()) for seed in sorted(seeds)}


def reasons(marks: Iterable[Mark]) -> str:
    """Why rows may not decide a claim, each reason once, with its rows; empty if all may."""
    rows: dict[str, dict[str, None]] = {}
    for mark in marks:
        rows.setdefault(mark.why, {})[mark.row] = None
    return "; ".join(f"the {plural('row', len(of))} {joined([*of])} {why}" for why, of in rows.items())


def _what_would_resolve(claim: Claim, judged: Judged, outlook: Outlook, where: str) -> str:
    """The comparisons that are undecided, and how many more seeds or rounds would decide the claim, or why none
    would.

    where: the scheme of positions, in words; under another one, the claim may need more.
    """
    unit, comparisons, undecided = claim.paired_by, judged.comparisons, judged.undecided
    if unpaired := [comparison.formula for comparison in comparisons if not comparison.values]:
        which = joined(unpaired) if len(unpaired) < len(comparisons) else "any comparison"
        return f"no {unit} has all the rows of {which}"
    if any(isinstance(each.evidence, Waiting) for each in undecided):
        return "its plan is not complete"
    is_or_are = f"{plural('comparison', len(undecided))} {'is' if len(undecided) == 1 else 'are'}"
    named = f"the undecided {is_or_are} {joined([_undecided(each, judged, unit) for each in undecided])}"
    if outlook.marks:
        return f"{named}; more {unit}s would not decide the claim if {SAME}: {reasons(outlook.marks)}"
    if outlook.lacks_rows:
        return f"{named}; more {unit}s would not decide the claim if {SAME}: {_rows_are_missing(claim, comparisons)}"
    fewest, more = outlook.have, outlook.more
    if more is None and fewest < 2:
        return f"{named}; give 4 {unit}s or more"
    if more is None:
        return f"{named}; over {MOST_SEEDS:,} {unit}s would be needed if {SAME}"
    decide_it = " ".join(filter(None, ["would decide the claim", where]))
    return f"{named}; about {more} {plural(unit, more)} more than these {fewest} {decide_it} if {SAME}"


def _undecided(comparison: Compared, judged: Judged, unit: str) -> str:
    """A comparison with half the width of its 95% interval, and the correction without which it would decide."""
    half, alone, count = comparison.half_width, comparison.word(), len(judged.comparisons)
    width = f"too few {unit}s for an interval" if half is None else f"+-{half:.2g}"
    if alone == "not resolved":
        return f"{comparison.formula} ({width})"
    if comparison.word(judged.level) == alone:
        return f"{comparison.formula} ({width}, {alone} by itself, but not as one of {count} comparisons)"
    return f"{comparison.formula} ({width}, {alone} only without Holm's correction)"
