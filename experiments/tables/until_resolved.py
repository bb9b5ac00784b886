"""The seeds that decide most, chosen one at a time: how `--until-resolved` uses its hours.

Verdicts stay valid whenever the next seed is chosen or left out, because the evidence may be looked at after each.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from experiments.cells.resources import Workers
from experiments.display.lines import say
from experiments.display.numbers import rough_duration
from experiments.failures.wording import joined, plural
from experiments.statistics.comparison import Compared
from experiments.statistics.evidence import MOST_SEEDS
from experiments.tables.definition.request import Request, configuration_key
from experiments.tables.report import Report
from experiments.tables.seeds import FIRST_SEEDS, begun_seeds
from experiments.tables.sources.source import TO_MAKE, Outcomes, Source, TableCell
from experiments.tables.verdict import UNDECIDED

MAX_FAILURES = 3  # a row with this many failed cells gets no more, nor does a cell that so often remained to be made


@dataclass(frozen=True)
class NextCells:
    """The next cells to make, and the reason for the choice."""

    cells: list[TableCell]
    why: str


@dataclass(frozen=True)
class _Open:
    """A comparison that is needed to decide a claim."""

    claim: str
    comparison: Compared
    rows: list[str]  # configurations
    seeds: int | None  # seeds that it needs in total; None: over MOST_SEEDS

    def cost(self, seconds: dict[str, float]) -> float:
        """The processor time that the comparison still needs, in seconds of cells."""
        needed = MOST_SEEDS if self.seeds is None else self.seeds
        return max(1, needed - len(self.comparison.values)) * sum(seconds.get(row, 1.0) for row in self.rows)


def until_resolved(
    request: Request, source: Source, reported: Callable[[Outcomes], Report],
    hours: float, workers: Workers, console: Console,
) -> Report:  # fmt: skip
    """Make cells until every claim is decided that seeds alone may decide, the rows of the others have MOST_SEEDS, or
    the hours are used. Returns the last report.

    Raises Interrupted; the same command continues from there.
    """
    began = time.monotonic()
    attempts: Counter[TableCell] = Counter()
    while True:
        outcomes = Outcomes(source)
        report = reported(outcomes)
        given_up = {cell for cell, count in attempts.items() if count >= MAX_FAILURES}
        step = next_step(request, source, outcomes, report, given_up)
        used = (time.monotonic() - began) / 3600
        if step is None or used >= hours:
            reason = "nothing is left that seeds could decide" if step is None else f"{hours:g} h are used"
            say(console, f"{reason}; {_open_claims(report)}")
            return report
        say(console, f"{used:.2f} of {hours:g} h; {_open_claims(report)}; {step.why}")
        source.make(step.cells, request.group, console, workers)
        # a cell whose process is killed, or that another process trains, remains to be made
        attempts.update(step.cells)


def next_step(
    request: Request, source: Source, outcomes: Outcomes, report: Report, given_up: Collection[TableCell] = ()
) -> NextCells | None:
    """The cells that decide most for their time; None if nothing is open.

    First every row gets FIRST_SEEDS. Then the next seed goes to the open comparison that needs the least further time.

    given_up: cells that are not tried again.
    """

    def to_make(seeds: Sequence[int]) -> list[TableCell]:
        return [cell for cell in source.cells(seeds) if cell not in given_up and outcomes[cell].state in TO_MAKE]

    first = to_make(range(FIRST_SEEDS))
    if first:
        seed = first[0].seed
        return NextCells([cell for cell in first if cell.seed == seed], f"seed {seed} of every row")
    cells = source.cells(sorted({*range(FIRST_SEEDS), *begun_seeds(source, outcomes)}))
    seconds = _seconds(cells, outcomes)
    failed = [cell for cell in cells if outcomes[cell].state in ("failed", "refused")]
    failed += [cell for cell in given_up if outcomes[cell].state in TO_MAKE]
    failures = Counter(cell.row for cell in failed)
    failing = {row for row, count in failures.items() if count >= MAX_FAILURES}
    candidates = [candidate for candidate in _open(request, report) if not failing & set(candidate.rows)]
    for chosen in sorted(candidates, key=lambda candidate: candidate.cost(seconds)):
        if cells := _next_seed(to_make, chosen.rows):
            needed = f"about {chosen.seeds}" if chosen.seeds else f"over {MOST_SEEDS:,}"
            have = len(chosen.comparison.values)
            why = f"{chosen.claim}: {chosen.comparison.sentence} has {have} of {needed} seeds"
            left = rough_duration(chosen.cost(seconds)) if chosen.seeds else "too long"
            return NextCells(cells, f"{why}, {left} of one core; seed {cells[0].seed} next")
    return None


def _open(request: Request, report: Report) -> Iterator[_Open]:
    """The comparisons that do not hold yet, of the undecided claims that seeds can decide, under each scheme."""
    for verdict in report.verdicts:
        outlooks = {scheme: finding.outlook for scheme, finding in verdict.findings.items()}
        if verdict.word not in UNDECIDED or verdict.claim.of != "score":
            continue
        if not all(outlook.can_decide for outlook in outlooks.values()):
            continue
        for scheme, outlook in outlooks.items():
            if outlook.word != "not resolved":
                continue
            cannot_hold = any(each.later or each.outlook != "holds" for each in outlook.undecided)
            for comparison in outlook.undecided:
                if comparison.later or (cannot_hold and comparison.outlook == "holds"):
                    continue
                # one that contradicts the claim does so at a stricter level
                level = outlook.level / (1 if comparison.outlook == "holds" else len(outlook.comparisons))
                rows = [configuration_key(row, scheme) for row in comparison.rows]
                yield _Open(verdict.key, comparison, rows, comparison.seeds_needed(level))


def _next_seed(to_make: Callable[[Sequence[int]], list[TableCell]], rows: Sequence[str]) -> list[TableCell]:
    """The missing cells of the first seed that one of the rows lacks; empty if all have MOST_SEEDS."""
    for first in range(0, MOST_SEEDS, FIRST_SEEDS):
        missing = [cell for cell in to_make(range(first, first + FIRST_SEEDS)) if cell.row in rows]
        if missing:
            return [cell for cell in missing if cell.seed == missing[0].seed]
    return []


def _seconds(cells: Sequence[TableCell], outcomes: Outcomes) -> dict[str, float]:
    """The mean processor time of a cell of each row."""
    times: dict[str, list[float]] = {}
    for cell in cells:
        result = outcomes[cell].result
        if seconds := result["processor_seconds"] or result["wall_seconds"]:
            times.setdefault(cell.row, []).append(seconds)
    return {row: float(np.mean(of_row)) for row, of_row in times.items()}


def _open_claims(report: Report) -> str:
    counts = Counter(verdict.word for verdict in report.verdicts)
    undecided = [f"{counts[word]} {'is' if counts[word] == 1 else 'are'} {word}" for word in UNDECIDED if counts[word]]
    claims = f"{len(report.verdicts)} {plural('claim', len(report.verdicts))}"
    return f"of {claims}, {joined(undecided) if undecided else 'all are decided'}"
