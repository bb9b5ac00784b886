"""The present state of a table: published numbers, measurements, verdicts, and conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from experiments.display.rows import Row
from experiments.statistics.comparison import MarkKind
from experiments.statistics.evidence import Anytime, Evidence, Interval, interval, standard_error
from experiments.statistics.marks import mean_late_gain
from experiments.tables.conditions import (
    distinct,
    facts,
    notes_of_definition,
    notes_of_machines,
)
from experiments.tables.definition.published import PublishedNumber
from experiments.tables.definition.request import Configuration, Request, configuration_key
from experiments.tables.definition.table import sense_of
from experiments.tables.line import BesidePrinted, Line, Measurements, SeedLine, Sign
from experiments.tables.partial_seeds import partial_difference, partial_mean
from experiments.tables.seed_plan import CheckedPlan
from experiments.tables.sources.source import ENDED
from experiments.tables.verdict import Measures, Verdict, counting, decide

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Report:
    """All data that a rendering shows. The lines and the verdicts follow from its other parts."""

    request: Request
    given: dict[str, Row]  # configuration -> columns that need no result: its sizes, and what the paper printed
    measured: dict[str, Measurements]  # by configuration
    by_seed: list[SeedLine]
    stuck: dict[str, Mapping[MarkKind, str]]  # configuration -> reasons why it may not decide any claim
    step_seconds: dict[str, dict[int, float]]  # configuration -> round of the table's bench -> seconds of a step
    printed: dict[str, dict[str, PublishedNumber]]  # row -> metric -> what the paper printed
    evidence: Evidence
    plan: CheckedPlan | None  # the one that the seeds follow; if it is void, the evidence is anytime-valid
    facts_of_cells: list[tuple[str, str]]
    notes_of_cells: list[str]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the conditions under which the numbers were made."""
        return [*facts(self.request, self.evidence, self.plan, self.facts_of_cells)]

    @property
    def notes(self) -> list[str]:
        """Sentences on everything that a reader would not expect."""
        return [*notes_of_definition(self.request), *notes_of_machines(self.by_seed), *self.notes_of_cells]

    @property
    def score(self) -> str:
        """The name of the score's column."""
        return self.request.budget.score_name

    @property
    def is_complete(self) -> bool:
        """Whether every cell is done, or ended in NaN."""
        return all(cell.state in ENDED for cell in self.by_seed)

    @property
    def cells(self) -> int:
        """The number of cells: those of the requested seeds, and the others that have begun."""
        return len(self.by_seed)

    @property
    def missing(self) -> int:
        """The number of cells without a score."""
        return self.cells - sum(cell.score is not None for cell in self.by_seed)

    @cached_property
    def lines(self) -> list[Line]:
        """A line for each configuration."""
        lines = [self._line(configuration) for configuration in self.request.configurations.values()]
        return [replace(line, beside_printed=self._beside_printed(line, under(line.scheme, lines))) for line in lines]

    def exact_rows(self) -> list[Row]:
        """The lines as the CSV has them."""
        return [line.columns(self.score) for line in self.lines]

    def exact_rows_by_seed(self) -> list[Row]:
        """The lines of the cells as their CSV has them."""
        return [cell.columns(self.score) for cell in self.by_seed]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """A verdict on every claim that is about this budget."""
        request = self.request
        measures = {scheme: self._measures(scheme) for scheme in request.schemes}
        return decide(request.claims, request.budget, request.rows, measures, self.evidence, self._unchosen)

    @property
    def others(self) -> int:
        """The number of verdicts that count beside the chosen claims, on claims that the user did not choose."""
        return counting(self._unchosen, self.evidence)

    @property
    def _unchosen(self) -> int:
        request = self.request
        rows = request.table.rows_at(request.budget_name)
        tried = (claim for claim in request.other_claims.values() if claim.parts_at(rows))
        return sum(len(request.schemes) if claim.of == "score" else 1 for claim in tried)

    def known(self, row: str, scheme: str, number: Callable[[Line], Number | None]) -> Number | None:
        """A number of a row under a scheme of positions, or if it is unknown there, under another one."""
        own_first = [*under(scheme, self.lines), *self.lines]
        return first_known(number(line) for line in own_first if line.row == row)

    def mean_score(self, row: str, scheme: str, seeds: Collection[int]) -> float | None:
        """The mean score of a row over those of these seeds that have one."""
        scores = self._scores[configuration_key(row, scheme)]
        return mean_of_known(scores.get(seed) for seed in seeds)

    def timed_scheme(self, scheme: str) -> str:
        """The scheme of positions whose step times count for one. If the bench timed only another, as it did for older
        pages, that one counts.
        """
        timed = [each.scheme for key, each in self.request.configurations.items() if key in self.step_seconds]
        return scheme if scheme in timed or not timed else timed[0]

    def step_ratios(self, row: str, other: str, scheme: str) -> list[float]:
        """The ratio of the step times of two rows in each round of the bench, under `timed_scheme`."""
        timed = self.timed_scheme(scheme)
        first, second = (self.step_seconds.get(configuration_key(each, timed), {}) for each in (row, other))
        return ratios_by_round(first, second)

    def step_ratio_interval(self, row: str, other: str, scheme: str) -> Interval | None:
        """The anytime-valid 95% interval of the mean logarithm of this ratio; None if it is infinite, and for ratios
        without any spread, which were not measured as such.
        """
        ratios = self.step_ratios(row, other, scheme)
        return interval(Anytime(), [math.log(ratio) for ratio in ratios]) if len({*ratios}) > 1 else None

    @cached_property
    def machines(self) -> dict[tuple[str, str, int], str]:
        """The machines of the cells, with their numbers of threads, by row, scheme and seed, as far as it is known."""
        return {(cell.row, cell.scheme, cell.seed): cell.machine for cell in self.by_seed if cell.machine}

    @cached_property
    def _cells(self) -> dict[str, list[SeedLine]]:
        """The lines of the cells of each configuration."""
        places = {key: (each.row, each.scheme) for key, each in self.request.configurations.items()}
        return {
            key: [cell for cell in self.by_seed if (cell.row, cell.scheme) == place] for key, place in places.items()
        }

    @cached_property
    def _scores(self) -> dict[str, dict[int, float]]:
        """The scores of each configuration by seed."""
        return {
            key: {cell.seed: cell.score for cell in cells if cell.score is not None}
            for key, cells in self._cells.items()
        }

    def _line(self, configuration: Configuration) -> Line:
        """The line of a configuration, without what depends on other rows than the baseline."""
        request, key, scheme = self.request, configuration.key, configuration.scheme
        baseline = configuration_key(request.table.baseline, scheme)
        scores, cells, measured = self._scores[key], self._cells[key], self.measured[key]
        done = [cell for cell in cells if cell.state == "done"]
        values, finished = list(scores.values()), {seed for of_row in self._scores.values() for seed in of_row}
        others = {} if key == baseline else self._scores[baseline]
        differences = [scores[seed] - others[seed] for seed in scores if seed in others]
        by_loss = request.budget.score == "validation_loss"
        return Line(
            row=configuration.row,
            scheme=scheme,
            label=configuration.definition.label,
            given=self.given[key],
            score=float(np.mean(values)) if values else None,
            standard_error=standard_error(values),
            seeds=len(values),
            of_seeds=partial_mean(scores, finished),
            difference=float(np.mean(differences)) if differences else None,
            interval=interval(self.evidence, differences),
            difference_of_seeds=partial_difference(request.table.baseline, scores, others),
            unigram_loss=mean_of_known(cell.unigram_loss for cell in done),
            late_gain=mean_late_gain(cell.late_gain for cell in done) if by_loss else None,
            mark=" and ".join(self.stuck.get(key, {}).values()) or None,
            measured=replace(measured, own={name: self._own(name, key) for name in request.column_names}),
            state=_state(cells),
        )

    def _own(self, name: str, key: str) -> Any:
        """A column of the table's own: a mean over the seeds, but the perplexity is that of the mean loss."""
        if name == "perplexity" and self.score == "validation_loss":
            return math.exp(np.mean(losses)) if (losses := [*self._scores[key].values()]) else None
        return self.measured[key].own.get(name)

    def _beside_printed(self, line: Line, lines: Sequence[Line]) -> BesidePrinted:
        """The rank of a row and the paper's, among the rows that have both numbers, and the sign of the difference.

        A row whose mean covers only some of the seeds has no rank, and does not count in the ranks of others. Nor has a
        row that is alone.

        lines: those under the row's scheme of positions.
        """
        printed, row, baseline = self.request.printed, line.row, self.request.table.baseline
        if printed is None:
            return BesidePrinted()
        values = {of: numbers[printed.metric].value for of, numbers in self.printed.items()}
        known = {of: value for of, value in values.items() if value is not None}
        ours, theirs = self.request.budget.sense, sense_of(printed.better)
        both = {other.row: other.score for other in lines if other.row in known and other.score is not None}
        ranked = {other.row: both[other.row] for other in lines if other.row in both and not other.of_seeds}
        found = BesidePrinted()
        if row in ranked and len(ranked) > 1:
            rank = 1 + sum(ours * (score - ranked[row]) > 0 for score in ranked.values())
            published_rank = 1 + sum(theirs * (known[other] - known[row]) > 0 for other in ranked)
            found = BesidePrinted(rank=rank, published_rank=published_rank, rank_deviation=rank - published_rank)
        if row in both and baseline in known and row != baseline:
            found = replace(found, sign=_sign(line, ours, theirs * (known[row] - known[baseline])))
        return found

    def _measures(self, scheme: str) -> Measures:
        """The numbers that claims can be about under one scheme, by the row's own key."""
        tunings = self.request.tunings
        keys = {each.row: key for key, each in self.request.configurations.items() if each.scheme == scheme}
        lines = {line.row: line for line in under(scheme, self.lines)}
        return Measures(
            score={row: self._scores[key] for row, key in keys.items()},
            step_time={row: self.step_seconds.get(key, {}) for row, key in keys.items()},
            parameters={
                row: {cell.seed: count for cell in self._cells[key] if cell.state == "done" and cell.score is not None}
                for row, key in keys.items()
                if (count := lines[row].measured.parameters)
            },
            sizes={row: line.columns(self.score) for row, line in lines.items()},
            stuck={row: self.stuck[key] for row, key in keys.items() if key in self.stuck},
            late_gain={row: line.late_gain for row, line in lines.items() if line.late_gain is not None},
            untuned=[row for row, key in keys.items() if key in tunings and not tunings[key].is_fair],
        )


def under(scheme: str, lines: Sequence[Line]) -> list[Line]:
    """The lines under a scheme of positions."""
    return [line for line in lines if line.scheme == scheme]


def ratios_by_round(of_row: Mapping[int, float], of_other: Mapping[int, float]) -> list[float]:
    """The ratio of two step times in each round that timed both."""
    return [of_row[turn] / of_other[turn] for turn in of_row if turn in of_other]


def _sign(line: Line, our_sign: int, published_gain: float) -> Sign:
    """Whether the difference of a line has the sign of the paper's."""
    if line.difference is None or line.interval is None or published_gain == 0:
        return "not resolved"
    low, high = line.interval
    if low <= 0 <= high:
        return "not resolved"
    return "same" if our_sign * line.difference * published_gain > 0 else "opposite"


def _state(cells: Sequence[SeedLine]) -> str:
    done = sum(cell.state == "done" for cell in cells)
    others = distinct(cell.state for cell in cells if cell.state != "done")
    return "done" if not others else f"{done} of {len(cells)} done, {', '.join(others)}"


def first_known(values: Iterable[Number | None]) -> Number | None:
    """The first value that is not None; None if there is none."""
    return next((value for value in values if value is not None), None)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are not None; None if there is none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
