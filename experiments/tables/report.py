"""The present state of a table: published numbers, measurements, verdicts, and conditions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.record.dotted import leaves, value_at
from experiments.record.result import Fields
from experiments.statistics.comparison import MarkKind
from experiments.statistics.evidence import Anytime, Evidence, Interval, interval, standard_error
from experiments.statistics.plateau import mean_late_gain
from experiments.tables.conditions import (
    CellOutcomes,
    Conditions,
    distinct,
    facts,
    facts_of_cells,
    notes_of_cells,
    notes_of_definition,
    notes_of_machines,
)
from experiments.tables.definition.published import Published, PublishedNumber
from experiments.tables.definition.request import Request, RowUnderScheme, configuration_key
from experiments.tables.definition.table import Budget, Direction, TableRow
from experiments.tables.marks import stuck_of
from experiments.tables.partial import partial_difference, partial_mean
from experiments.tables.seed_plan import CheckedPlan
from experiments.tables.sources.source import CellOutcome, Outcomes, Source
from experiments.tables.verdict import Measures, Verdict, counting, decide

Line = dict[str, Any]  # columns of a configuration, or of a cell
# columns of every table
MEASURED = (
    "parameters", "step_seconds", "step_time", "steps", "tokens", "processor_seconds", "peak_memory_bytes",
)  # fmt: skip
ENDED = ("done", "diverged")  # states of a cell that needs no further training


@dataclass(frozen=True)
class Report:
    """All data that a rendering shows. The lines and the verdicts follow from its other parts."""

    request: Request
    given: dict[str, Line]  # configuration -> columns that need no result: its sizes, and what the paper printed
    measured: dict[str, Line]  # configuration -> columns of its results and the bench, besides scores and losses
    by_seed: list[Line]  # a cell each
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
        return all(cell["state"] in ENDED for cell in self.by_seed)

    @property
    def cells(self) -> int:
        """The number of cells: those of the requested seeds, and the others that have begun."""
        return len(self.by_seed)

    @property
    def missing(self) -> int:
        """The number of cells without a score."""
        return self.cells - sum(cell[self.score] is not None for cell in self.by_seed)

    @cached_property
    def lines(self) -> list[Line]:
        """A line for each configuration: the CSV's columns."""
        lines = [self._line(of) for of in self.request.configurations.values()]
        return [line | self._beside_printed(line, under(line["positions"], lines)) for line in lines]

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

    def known(self, row: str, scheme: str, key: str) -> Any:
        """A number of a row under a scheme of positions, or if it is unknown there, under another one."""
        own_first = [*under(scheme, self.lines), *self.lines]
        return _first(line.get(key) for line in own_first if line["row"] == row)

    def step_ratios(self, row: str, other: str, scheme: str) -> list[float]:
        """The ratio of the step times of two rows under a scheme of positions in each round of the bench.

        If the bench timed only another scheme, as it did for older pages, that one counts.
        """
        configurations = self.request.configurations
        timed = [configurations[key].scheme for key in self.step_seconds]
        counted = scheme if scheme in timed or not timed else timed[0]
        first, second = (self.step_seconds.get(configuration_key(each, counted), {}) for each in (row, other))
        return _ratios(first, second)

    def step_ratio_interval(self, row: str, other: str, scheme: str) -> Interval | None:
        """The anytime-valid 95% interval of the mean logarithm of this ratio; None if it is infinite, and for ratios
        without any spread, which were not measured as such.
        """
        ratios = self.step_ratios(row, other, scheme)
        return interval(Anytime(), [math.log(ratio) for ratio in ratios]) if len({*ratios}) > 1 else None

    @cached_property
    def machines(self) -> dict[tuple[str, str, int], str]:
        """The machines of the cells, with their numbers of threads, by row, scheme and seed, as far as it is known."""
        return {
            (cell["row"], cell["positions"], cell["seed"]): cell["machine"] for cell in self.by_seed if cell["machine"]
        }

    @cached_property
    def _cells(self) -> dict[str, list[Line]]:
        """The lines of the cells of each configuration."""
        places = {key: (of.row, of.scheme) for key, of in self.request.configurations.items()}
        return {
            key: [cell for cell in self.by_seed if (cell["row"], cell["positions"]) == place]
            for key, place in places.items()
        }

    @cached_property
    def _scores(self) -> dict[str, dict[int, float]]:
        """The scores of each configuration by seed."""
        return {
            key: {cell["seed"]: cell[self.score] for cell in cells if cell[self.score] is not None}
            for key, cells in self._cells.items()
        }

    def _line(self, of: RowUnderScheme) -> Line:
        """The columns of a configuration that depend on no other row but the baseline."""
        request, baseline = self.request, configuration_key(self.request.table.baseline, of.scheme)
        scores, cells, measured = self._scores[of.key], self._cells[of.key], self.measured[of.key]
        done = [cell for cell in cells if cell["state"] == "done"]
        values, finished = list(scores.values()), {seed for of_row in self._scores.values() for seed in of_row}
        others = {} if of.key == baseline else self._scores[baseline]
        differences = [scores[seed] - others[seed] for seed in scores if seed in others]
        low, high = interval(self.evidence, differences) or (None, None)
        return {
            "row": of.row, "positions": of.scheme, "label": of.definition.label, **self.given[of.key],
            self.score: float(np.mean(values)) if values else None,
            "standard_error": standard_error(values) if values else None,
            "seeds": len(values),
            "of_seeds": partial_mean(scores, finished),
            **{name: self._column(name, of.key) for name in (place.rpartition(".")[2] for place in request.columns)},
            "difference": float(np.mean(differences)) if differences else None,
            "difference_low": low, "difference_high": high,
            "difference_of_seeds": partial_difference(request.table.baseline, scores, others),
            "unigram_loss": _mean(cell["unigram_loss"] for cell in done),
            "late_gain": mean_late_gain(done) if request.budget.score == "validation_loss" else None,
            "mark": " and ".join(self.stuck.get(of.key, {}).values()) or None,
            **{name: measured[name] for name in MEASURED},
            "state": _state(cells),
        }  # fmt: skip

    def _column(self, name: str, key: str) -> Any:
        """A column of the table's own: a mean over the seeds, but the perplexity is that of the mean loss."""
        if name == "perplexity" and self.score == "validation_loss":
            return math.exp(np.mean(losses)) if (losses := [*self._scores[key].values()]) else None
        return self.measured[key].get(name)

    def _beside_printed(self, line: Line, lines: Sequence[Line]) -> Line:
        """The rank of a row and the paper's, among the rows that have both numbers, and whether the difference from the
        baseline has the paper's sign.

        A row whose mean covers only some of the seeds has no rank, and does not count in the ranks of others. Nor has a
        row that is alone.

        lines: those under the row's scheme of positions.
        """
        columns: Line = dict.fromkeys(("rank", "published_rank", "rank_deviation", "sign"))
        printed, row, baseline = self.request.printed, line["row"], self.request.table.baseline
        if printed is None:
            return columns
        values = {of: numbers[printed.metric].value for of, numbers in self.printed.items()}
        known = {of: value for of, value in values.items() if value is not None}
        ours, theirs = _sense(self.request.budget.better), _sense(printed.better)
        both = [other for other in lines if other["row"] in known and other[self.score] is not None]
        ranked = [other for other in both if not other["of_seeds"]]
        if line in ranked and len(ranked) > 1:
            rank = 1 + sum(ours * (other[self.score] - line[self.score]) > 0 for other in ranked)
            published_rank = 1 + sum(theirs * (known[other["row"]] - known[row]) > 0 for other in ranked)
            columns |= {"rank": rank, "published_rank": published_rank, "rank_deviation": rank - published_rank}
        if line in both and baseline in known and row != baseline:
            columns["sign"] = _sign(line, ours, theirs * (known[row] - known[baseline]))
        return columns

    def _measures(self, scheme: str) -> Measures:
        """The numbers that claims can be about under one scheme, by the row's own key."""
        tunings = self.request.tunings
        keys = {of.row: key for key, of in self.request.configurations.items() if of.scheme == scheme}
        lines = {line["row"]: line for line in under(scheme, self.lines)}
        return Measures(
            score={row: self._scores[key] for row, key in keys.items()},
            step_time={row: self.step_seconds.get(key, {}) for row, key in keys.items()},
            parameters={
                row: {
                    cell["seed"]: count
                    for cell in self._cells[key]
                    if cell["state"] == "done" and cell[self.score] is not None
                }
                for row, key in keys.items()
                if (count := lines[row]["parameters"])
            },
            sizes=lines,
            stuck={row: self.stuck[key] for row, key in keys.items() if key in self.stuck},
            late_gain={row: line["late_gain"] for row, line in lines.items() if line["late_gain"] is not None},
            untuned=[row for row, key in keys.items() if key in tunings and not tunings[key].is_fair],
        )


def report(
    request: Request, source: Source, seeds: Sequence[int], all_outcomes: Outcomes, conditions: Conditions
) -> Report:
    """The table of the results that the cells of some seeds have so far.

    seeds: those of the request, and others, of which only cells that have begun count. Raises Mistake for a score that
    the source does not give.
    """
    # for seeds that the user did not request, some rows may have a cell and others none
    outcomes = {
        (cell.row, cell.seed): _with_finite_score(all_outcomes[cell], request.budget.score)
        for cell in source.cells(seeds)
        if cell.seed in request.seeds or all_outcomes[cell].state != "missing"
    }
    _check_score(request, outcomes)
    configurations, seconds = request.configurations, conditions.step_times.seconds
    published, printed = conditions.published, _printed(request.rows, conditions.published)
    of_rows = {key: [outcomes[place] for place in outcomes if place[0] == key] for key in configurations}
    return Report(
        request,
        {key: source.sizes(key) | _published_columns(published, printed.get(of.row))
         for key, of in configurations.items()},
        {key: _measured(request, of, of_rows[key], seconds) for key, of in configurations.items()},
        list(_by_seed(request, outcomes, _scores(request.budget, outcomes))),
        {key: stuck for key, of_row in of_rows.items() if (stuck := stuck_of(of_row, request.budget))},
        seconds, printed, conditions.evidence, conditions.plan,
        list(facts_of_cells(request, outcomes, conditions)),
        list(notes_of_cells(request, outcomes, conditions.step_times)),
    )  # fmt: skip


def under(scheme: str, lines: Sequence[Line]) -> list[Line]:
    """The lines, of configurations or of cells, under a scheme of positions."""
    return [line for line in lines if line["positions"] == scheme]


def without_unnamed_scheme(lines: Sequence[Line]) -> list[Line]:
    """The lines as files have them: without the column `positions` if the table has no schemes."""
    return [{key: value for key, value in line.items() if key != "positions" or value} for line in lines]


def _check_score(request: Request, outcomes: CellOutcomes) -> None:
    """Raises Mistake if no finished cell has the score. Only a result says which numbers a function returns."""
    place, source = request.budget.score, request.table.source
    results = [outcome.result for outcome in outcomes.values() if outcome.state == "done"]
    if source == "runs" or not results or any(value_at(result, place) is not None for result in results):
        return
    known = [key for key, value in leaves(results[0]) if isinstance(value, int | float)]
    meant = did_you_mean(place, known)
    raise Mistake(f"{request.name}: budgets.{request.budget_name}.score: {source} gives no number {place!r}{meant}")


def _with_finite_score(outcome: CellOutcome, place: str) -> CellOutcome:
    """The outcome of a cell, which counts as diverged if its score is not finite."""
    value = value_at(outcome.result, place) if outcome.state == "done" else None
    if value is None or math.isfinite(value):
        return outcome
    return replace(outcome, state="diverged", reason=f"{place} is {value:g}")


def _scores(budget: Budget, outcomes: CellOutcomes) -> dict[str, dict[int, float]]:
    """The scores of finished cells, and the stand-in that the budget gives to diverged ones: the worst of its kind."""
    scores: dict[str, dict[int, float]] = {}
    done = [outcome.result for outcome in outcomes.values() if outcome.state == "done"]
    stand_ins = [value for result in done if budget.diverged and (value := value_at(result, budget.diverged))]
    worst = max if budget.better == "lower" else min
    for (row, seed), outcome in outcomes.items():
        value = value_at(outcome.result, budget.score) if outcome.state == "done" else None
        if outcome.state == "diverged" and stand_ins:
            value = worst(stand_ins)
        if value is not None:
            scores.setdefault(row, {})[seed] = value
    return scores


def _by_seed(request: Request, outcomes: CellOutcomes, scores: Mapping[str, dict[int, float]]) -> Iterator[Line]:
    """A line for every cell: its score, the loss of a unigram model, and its outcome."""
    configurations = request.configurations
    for (key, seed), outcome in outcomes.items():
        of = configurations[key]
        yield {
            "row": of.row, "positions": of.scheme, "seed": seed,
            request.budget.score_name: scores.get(key, {}).get(seed),
            **{name: outcome.result[name] for name in ("unigram_loss", "late_gain")},
            "state": outcome.state,
            "machine": _machines(outcome.result),
        }  # fmt: skip


def _machines(result: Fields) -> str | None:
    """The machines on which a cell was trained and fine-tuned, with the number of threads on a CPU."""
    parts = [result, *(result.get("finetune") or {}).values()]
    starts = [start for part in parts for start in value_at(part, "environment.earlier") or ()]
    devices = (*(value_at(start, "torch.device") for start in starts), *(part["device"] for part in parts))
    return ", then ".join(distinct(devices)) or None


def _printed(rows: Mapping[str, TableRow], published: Published | None) -> dict[str, dict[str, PublishedNumber]]:
    if published is None:
        return {}
    return {
        key: {metric: published.number(row.published, metric) for metric in published.metrics}
        for key, row in rows.items()
        if row.published
    }


def _published_columns(published: Published | None, numbers: dict[str, PublishedNumber] | None) -> Line:
    if published is None:
        return {}
    columns: Line = {}
    for metric in published.metrics:
        number = numbers[metric] if numbers else PublishedNumber(None, None, "")
        columns |= {f"published_{metric}": number.value, f"published_{metric}_pm": number.spread}
        columns |= {f"published_{metric}_mark": number.mark}
    return columns


def _measured(
    request: Request, of: RowUnderScheme, outcomes: Sequence[CellOutcome], step_seconds: Mapping[str, dict[int, float]]
) -> Line:
    """Numbers of the finished cells and of the bench: means and medians, but the most of the memory."""
    results = [outcome.result for outcome in outcomes if outcome.state == "done"]
    places = [*request.columns, "steps", "tokens", "processor_seconds"]
    seconds = step_seconds.get(of.key, {})
    ratios = _ratios(seconds, step_seconds.get(configuration_key(request.table.baseline, of.scheme), {}))
    return {
        **{place.rpartition(".")[2]: _mean(value_at(result, place) for result in results) for place in places},
        "parameters": _first(value_at(result, "parameters.total") for result in results),
        "peak_memory_bytes": max((result["peak_memory_bytes"] or 0 for result in results), default=0) or None,
        "step_seconds": median(seconds.values()) if seconds else None,
        "step_time": median(ratios) if ratios else None,
    }


def _ratios(of_row: Mapping[int, float], of_other: Mapping[int, float]) -> list[float]:
    return [of_row[turn] / of_other[turn] for turn in of_row if turn in of_other]


def _sense(better: Direction) -> int:
    """The sign of a difference that is an advantage."""
    return 1 if better == "higher" else -1


def _sign(line: Line, our_sign: int, published_gain: float) -> str:
    low, high = line["difference_low"], line["difference_high"]
    if low is None or low <= 0 <= high or published_gain == 0:
        return "not resolved"
    return "same" if our_sign * line["difference"] * published_gain > 0 else "opposite"


def _state(cells: Sequence[Line]) -> str:
    done = sum(cell["state"] == "done" for cell in cells)
    others = distinct(cell["state"] for cell in cells if cell["state"] != "done")
    return "done" if not others else f"{done} of {len(cells)} done, {', '.join(others)}"


def _first(values: Iterator[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
