"""A report in sentences: the verdicts, each comparison with its numbers, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple, get_args

from experiments.display.numbers import difference_text
from experiments.failures.wording import joined, plural
from experiments.statistics.comparison import Compared, Exact
from experiments.tables.conditions import UNLIKE
from experiments.tables.definition.published import MARKS
from experiments.tables.definition.request import configuration_key
from experiments.tables.definition.table import Claim, Origin, Table
from experiments.tables.partial_seeds import SIGN
from experiments.tables.rendering.needs import needs
from experiments.tables.report import Report
from experiments.tables.seeds import seeds_text
from experiments.tables.verdict import TIME_MARGIN, UNDECIDED, Verdict, reasons

# in the order of the headline
WORDS = {
    "holds": "{} {hold}",
    "reversed": "{} {are} reversed",
    "no difference": "{} {make} no difference",
    "depends": "{} {depend} on positions",
    "not resolved": "{} {are} not resolved",
    "not tested": "{} {are} not tested",
}
PAPERS_OWN = "paper"  # the origin of a claim that the table's paper makes
CHECK = "check"  # the origin of a claim that tests the code and is no evidence
ORIGINS = {
    "secondary sources": "claimed by secondary sources",
    "this project": "a question of this project",
    CHECK: "a check of the code: it is true by proof or by construction",
}
ABOUT_FAILURE = "the claim is about training that fails, so a row that failed may decide here which side is better"
SINGULAR = {"hold": "holds", "are": "is", "make": "makes", "depend": "depends"}
LEAST_PARAMETERS = 0.01  # of the log of their ratio, from which on it is said
WIDE_RATIO = 0.2  # width of the interval of a log ratio of step times, from which on it is said
PLURAL = {verb: verb for verb in SINGULAR}


def headline(report: Report) -> str:
    """How many claims have which verdict, in a sentence for each party that makes claims, and then how many checks of
    the code; empty for a table without claims. The claims are named if the verdicts or the parties differ.
    """
    makers = {verdict.claim.origin: claimed_by(verdict.claim, report.request.table) for verdict in report.verdicts}
    by_origin = {
        origin: [verdict for verdict in report.verdicts if verdict.claim.origin == origin]
        for origin in sorted(makers, key=get_args(Origin).index)
    }
    return " ".join(
        _counted(verdicts, "check", " of the code", len(makers) > 1)
        if origin == CHECK
        else _counted(verdicts, "claim", f" by {makers[origin]}", len(makers) > 1)
        for origin, verdicts in by_origin.items()
    )


def claimed_by(claim: Claim, table: Table) -> str:
    """Who makes a claim of a table."""
    return table.paper.partition(",")[0] if claim.origin == PAPERS_OWN else claim.origin


def _counted(verdicts: Sequence[Verdict], noun: str, of: str, is_named: bool) -> str:
    by_word = {word: [verdict.key for verdict in verdicts if verdict.word == word] for word in WORDS}
    found = {word: keys for word, keys in by_word.items() if keys}
    clauses = []
    for word, keys in found.items():
        count = f"{len(keys)}" if len(found) > 1 else f"{len(keys)} {plural(noun, len(keys))}{of}"
        names = f" ({joined(keys)})" if is_named or len(found) > 1 else ""
        clauses.append(clause(word, count, len(keys)) + names)
    return f"{f'Of {len(verdicts)} {noun}s{of}, ' if len(found) > 1 else ''}{joined(clauses)}."


def clause(word: str, claims: str, count: int) -> str:
    """`C1 and C2 are reversed`: the verdict of `count` claims, which `claims` names or counts."""
    return WORDS[word].format(claims, **(SINGULAR if count == 1 else PLURAL))


def shown_or_claimed(report: Report) -> str:
    """The paper's claim of the table, or its question, and which of its claims the user chose; what the table shows, if
    it has no claims.
    """
    request, table = report.request, report.request.table
    is_question = table.shows.startswith(("whether ", "how "))
    if request.chosen_claims:
        whole = f"asks {table.shows}" if is_question else f"is about the claim that {table.shows}"
        return f"The whole table {whole}. This page decides {joined([*request.claims])} alone."
    return f"{('Asked' if is_question else 'Claimed') if table.claims else 'Shown'}: {table.shows}."


def missing(report: Report) -> str:
    """How many cells are missing, and which numbers are marked because they lack seeds; empty if there is neither."""
    uneven = any(line.of_seeds or line.difference_of_seeds for line in report.lines)
    are = "is" if report.missing == 1 else "are"
    counted = f"{report.missing} of {report.cells} cells {are} missing" if report.missing else ""
    marked = f"{SIGN} marks numbers that cover only some of the seeds" if uneven else ""
    said = "; ".join(filter(None, (counted, marked)))
    return f"{said}." if said else ""


def reason(verdict: Verdict) -> str:
    """Why there is no verdict, as a sentence; empty if there is one."""
    return f"{verdict.why[0].upper()}{verdict.why[1:]}." if verdict.why else ""


class Detail(NamedTuple):
    """A line below a claim."""

    level: int  # of the lists in which it stands: one of level 1 explains the one of level 0 above it
    text: str


def details(verdict: Verdict, report: Report) -> list[Detail]:
    """The comparisons of a claim under each scheme of positions, the rows that are left out, and the published
    numbers.
    """
    unit = verdict.claim.paired_by
    found = []
    for scheme, finding in verdict.findings.items():
        level = 0
        if scheme:
            found.append(Detail(0, f"{scheme}: {finding.word}"))
            level = 1
        for comparison in finding.comparisons:
            line = comparison_line(comparison, report, scheme, unit)
            # the reasons why a claim is not tested stand in the sentence on the claim
            if comparison.marks and finding.word != "not tested":
                line += f"; {reasons(comparison.marks)}"
            found.append(Detail(level, line))
            steps = (f"step, which decides nothing: {_numbers(step, unit)}" for step in comparison.steps)
            found += [Detail(level + 1, step) for step in steps]
        if verdict.claim.of_failure and any(
            report.stuck.get(configuration_key(row, scheme)) for each in finding.comparisons for row in each.rows
        ):
            found.append(Detail(level, ABOUT_FAILURE))
        if needed := needs(verdict, scheme, report):
            aim = "to decide it" if finding.word in UNDECIDED else "to keep it with added seeds"
            found.append(Detail(level, f"{aim}: {needed}"))
    if verdict.left_out:
        rows = f"{plural('row', len(verdict.left_out))} {joined(verdict.left_out)}"
        found.append(Detail(0, f"without the {rows}, which this budget does not have"))
    if said := ORIGINS.get(verdict.claim.origin):
        found.append(Detail(0, said))
    if verdict.claim.published:
        found.append(Detail(0, f"published: {verdict.claim.published}"))
    return found


def comparison_line(comparison: Compared, report: Report, scheme: str, unit: str) -> str:
    """A comparison with its mean, interval, number of seeds (or `unit`) and outcome, and of scores any advantage of the
    better side, and the seeds whose rows ran on unlike machines.

    scheme: the scheme of positions of the compared rows.
    """
    if comparison.mean is None:
        return f"{comparison.sentence}: no pair"
    if isinstance(comparison, Exact):
        return f"{comparison.sentence}: {comparison.mean:g}, {comparison.word()}"
    beside = [f"the mean is less than the margin of {comparison.margin:g}"] if is_small(comparison) else []
    if unit == "seed":
        beside += [*_advantages(comparison, report, scheme), *_unlike_machines(comparison, report, scheme)]
    return "; ".join([f"{_numbers(comparison, unit)}: {comparison.word()}", *beside])


def legend(report: Report) -> list[str]:
    """The meaning of the columns and of the marks of published numbers."""
    used = {number.mark for numbers in report.printed.values() for number in numbers.values() if number.value}
    meanings = [f"({mark}) {meaning}" for mark, meaning in MARKS.values() if mark in used]
    lines = ["Published numbers: " + "; ".join(meanings) + "."] if meanings else []
    baseline = report.request.table.baseline
    unit = report.request.budget.unit
    if any(line.standard_error is not None for line in report.lines):
        lines.append(f"+- after {report.score}: the standard error of the mean over the seeds.")
    lines.append(
        f"difference: {report.score} minus that of the row {baseline}, paired by seed, with its 95% interval"
        + (f", in {unit}." if unit else ".")
    )
    lines += partial_seeds(report)
    unigram = {line.unigram_loss for line in report.lines if line.unigram_loss is not None}
    if len(unigram) == 1:
        lines.append(
            f"unigram_loss, the loss of predicting every token from its frequency, is {unigram.pop():.4f} nats."
        )
    if any(line.measured.step_time for line in report.lines):
        lines.append(
            f"step: the time of a training step by the table's own bench, the median over its rounds, and the median "
            f"of the rounds' ratios to {baseline}, with the 95% interval of their geometric mean, where it is finite."
        )
    if unsteady := _unsteady_times(report):
        lines.append(unsteady)
    return lines


def _unsteady_times(report: Report) -> str:
    """Says how widely the ratios of step times spread, if the bench did not run on a quiet machine."""
    baseline = report.request.table.baseline
    bounds = (report.step_ratio_interval(line.row, baseline, line.scheme) for line in report.lines)
    low, high = max(filter(None, bounds), key=lambda each: each[1] - each[0], default=(0.0, 0.0))
    if high - low <= WIDE_RATIO:
        return ""
    return (
        f"The times of steps spread widely, up to [{math.exp(low):.2f}, {math.exp(high):.2f}], as on a machine that is "
        "not quiet."
    )


def partial_seeds(report: Report) -> list[str]:
    """A line for each row whose mean or difference does not cover all seeds, with the seeds that it covers."""
    lines = []
    for line in report.lines:
        over = {"mean": line.of_seeds, "difference": line.difference_of_seeds}
        parts = [f"the {name} covers {seeds}" for name, seeds in over.items() if seeds]
        name = " under ".join(filter(None, [line.row, line.scheme]))
        lines += [f"{SIGN} {name}: {'; '.join(parts)}."] if parts else []
    return lines


def closing_sentence(report: Report) -> str:
    """How to read differences and verdicts."""
    findings = (finding for verdict in report.verdicts for finding in verdict.findings.values())
    count = sum(bool(finding.comparisons) for finding in findings)
    tried = "one verdict is tried here" if count == 1 else f"{count} verdicts are tried here"
    if others := report.others:
        tried += f", and {others} on the table's other claims {'counts' if others == 1 else 'count'} too"
    schemes = " under every scheme of positions" if any(report.request.schemes) else ""
    timed = any(verdict.claim.of == "step_time" for verdict in report.verdicts)
    of_times = " Of step times, it is the difference of logarithms, paired by round." if timed else ""
    return (
        f"{' '.join(meaning_of_differences(report))}{of_times} A claim holds if all "
        f"of its comparisons hold{schemes}. Holm's correction keeps the chance of any wrong verdict below 5% "
        f"({tried}). The words beside single comparisons are without this correction: each is at 95% by itself."
    )


def meaning_of_differences(report: Report) -> list[str]:
    """What a difference is, in sentences."""
    parts = [part for verdict in report.verdicts for part in verdict.claim.parts_at(report.request.rows)]
    sentences = ["A difference is the left side of the sign minus the right side, paired by seed."]
    if any(part.steps for part in parts):
        sentences.append("For a trend, it is the first end of the fitted line minus the last.")
    if any(part.constant for part in parts):
        sentences.append("It includes a number that a comparison adds to one side.")
    if any("~" in part.relation for part in parts):
        sentences.append("It does not include a margin.")
    return sentences


def _numbers(comparison: Compared, unit: str) -> str:
    if comparison.mean is None:
        return f"{comparison.sentence}: no pair"
    count = len(comparison.values)
    difference = difference_text(comparison.mean, comparison.interval, digits=4)
    return f"{comparison.sentence}: {difference}, {count} {plural(unit, count)}"


def _advantages(comparison: Compared, report: Report, scheme: str) -> Iterator[str]:
    """The resources of which the row with the better mean score uses clearly more: parameters or step time."""
    if (ends := _ends(comparison, report, scheme)) is None:
        return
    worse, better = ends
    if times := more_parameters(comparison, report, scheme):
        yield f"{better} has {times:.2f} times the parameters of {worse}"
    if times := more_time(comparison, report, scheme):
        timed = report.timed_scheme(scheme)
        under = f" under {timed} positions, which alone were timed" if timed != scheme else ""
        yield f"a step of {better} takes {times:.2f} times the time of one of {worse}{under}"


def _unlike_machines(comparison: Compared, report: Report, scheme: str) -> Iterator[str]:
    """The seeds whose rows do not come from machines of one kind with one number of threads, as far as it is known."""
    machines = {
        seed: {report.machines.get((row, scheme, seed)) for row in comparison.rows} - {None}
        for seed in comparison.differences
    }
    if unlike := [seed for seed, names in machines.items() if len(names) > 1]:
        yield f"with {seeds_text(unlike)}, its rows ran on {UNLIKE}"


def more_parameters(comparison: Compared, report: Report, scheme: str) -> float | None:
    """How many times the parameters of the worse row the better one has, if these are clearly more."""
    if (ends := _ends(comparison, report, scheme)) is None:
        return None
    less, more = (report.known(row, scheme, lambda line: line.measured.parameters) for row in ends)
    return more / less if more and less and math.log(more / less) > LEAST_PARAMETERS else None


def more_time(comparison: Compared, report: Report, scheme: str) -> float | None:
    """How many times as long a step of the better row takes as one of the worse row, if it clearly takes longer."""
    if (ends := _ends(comparison, report, scheme)) is None:
        return None
    worse, better = ends
    bounds = report.step_ratio_interval(better, worse, scheme)
    return median(report.step_ratios(better, worse, scheme)) if bounds and bounds[0] > TIME_MARGIN else None


def _ends(comparison: Compared, report: Report, scheme: str) -> tuple[str, str] | None:
    """The two rows of a comparison, or the first and the last of a trend; that with the worse mean score over the
    seeds of its pairs comes first.

    None for other comparisons.
    """
    if isinstance(comparison, Exact) or len(comparison.rows) != max(2, len(comparison.steps) + 1):
        return None
    ends = comparison.rows[0], comparison.rows[-1]
    first, last = (report.mean_score(row, scheme, comparison.differences) for row in ends)
    if first is None or last is None:
        return None
    return ends if comparison.sense * (first - last) < 0 else ends[::-1]


def is_small(comparison: Compared) -> bool:
    """Whether a difference holds although its mean would not matter."""
    if comparison.relation != ">" or comparison.word() != "holds":
        return False
    return abs(comparison.mean or 0.0) < comparison.margin
