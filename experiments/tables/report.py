"""The present state of a table: published numbers, measurements, verdicts, and conditions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from experiments.record.dotted import value_at
from experiments.statistics.comparison import MarkKind
from experiments.statistics.evidence import Anytime, Evidence, Interval, interval, standard_error
from experiments.tables.conditions import (
    CellOutcomes,
    Conditions,
    distinct,
    facts,
    facts_of_cells,
    notes_of_cells,
    notes_of_definition,
)
from experiments.tables.definition.published import Published, PublishedNumber
from experiments.tables.definition.request import Request, RowUnderScheme, configuration_key
from experiments.tables.definition.table import Budget, TableRow
from experiments.tables.marks import Training, training_of
from experiments.tables.partial import partial_difference, partial_mean
from experiments.tables.seed_plan import CheckedPlan
from experiments.tables.sources.source import CellOutcome, Outcomes, Source
from experiments.tables.verdict import Measures, Verdict, counting, decide

Line = dict[str, Any]
ENDED = ("done", "diverged")  # states of a cell that needs no further training


@dataclass(frozen=True)
class Report:
    """All data that a rendering shows. The verdicts follow from its other parts."""

    request: Request
    lines: list[Line]  # a configuration each: the CSV's columns
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
        return [*notes_of_definition(self.request), *self.notes_of_cells]

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
        """The number of cells: one of each configuration and seed."""
        return len(self.request.configurations) * len({cell["seed"] for cell in self.by_seed})

    @property
    def missing(self) -> int:
        """The number of cells without a score."""
        return self.cells - sum(cell[self.score] is not None for cell in self.by_seed)

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

    def step_ratios(self, row: str, other: str) -> list[float]:
        """The ratio of the step times of two rows in each round of the bench, which times one scheme of positions."""
        seconds = {self.request.configurations[key].row: of_row for key, of_row in self.step_seconds.items()}
        return _ratios(seconds.get(row, {}), seconds.get(other, {}))

    def step_ratio_interval(self, row: str, other: str) -> Interval | None:
        """The anytime-valid 95% interval of the logarithm of this ratio; None if it is infinite."""
        return interval(Anytime(), [math.log(ratio) for ratio in self.step_ratios(row, other)])

    def _measures(self, scheme: str) -> Measures:
        """The numbers that claims can be about under one scheme, by the row's own key."""
        request = self.request
        keys = {of.row: key for key, of in request.configurations.items() if of.scheme == scheme}
        lines = {line["row"]: line for line in under(scheme, self.lines)}
        cells: dict[str, list[Line]] = {row: [] for row in lines}
        for cell in under(scheme, self.by_seed):
            if cell[self.score] is not None:
                cells[cell["row"]].append(cell)
        return Measures(
            score={row: {cell["seed"]: cell[self.score] for cell in of_row} for row, of_row in cells.items()},
            step_time={row: self.step_seconds.get(key, {}) for row, key in keys.items()},
            parameters={
                row: {cell["seed"]: count for cell in of_row if cell["state"] == "done"}
                for row, of_row in cells.items()
                if (count := lines[row]["parameters"])
            },
            sizes=lines,
            stuck={row: self.stuck[key] for row, key in keys.items() if key in self.stuck},
            late_gain={row: line["late_gain"] for row, line in lines.items() if line["late_gain"] is not None},
            untuned=[row for row, key in keys.items() if key in request.tunings and not request.tunings[key].is_fair],
        )


def report(
    request: Request, source: Source, seeds: Sequence[int], all_outcomes: Outcomes, conditions: Conditions
) -> Report:
    """The table of the results that the cells of some seeds have so far.

    seeds: those of the request, and others, of which only cells that have begun count.
    """
    # for seeds that the user did not request, some rows may have a cell and others none
    outcomes = {
        (cell.row, cell.seed): all_outcomes[cell]
        for cell in source.cells(seeds)
        if cell.seed in request.seeds or all_outcomes[cell].state != "missing"
    }
    configurations = request.configurations
    sizes = {key: source.sizes(key) for key in configurations}
    scores = _scores(request.budget, outcomes)
    trainings = {key: training_of(_of_row(outcomes, key), request.budget) for key in configurations}
    printed = _printed(request.rows, conditions.published)
    finished = {seed for of_row in scores.values() for seed in of_row}
    lines = [
        {"row": of.row, "positions": of.scheme, "label": of.definition.label, **sizes[key],
         **_published_columns(conditions.published, printed.get(of.row)),
         **_measured_columns(request, of, scores, _of_row(outcomes, key), trainings[key], finished, conditions)}
        for key, of in configurations.items()
    ]  # fmt: skip
    measured = Report(
        request, lines, list(_by_seed(request, outcomes, scores)),
        {key: training.stuck for key, training in trainings.items() if training.stuck},
        conditions.step_times.seconds, printed, conditions.evidence, conditions.plan,
        list(facts_of_cells(request, outcomes, conditions)),
        list(notes_of_cells(request, outcomes, conditions.step_times)),
    )  # fmt: skip
    return judged_by(conditions.evidence, measured)


def judged_by(evidence: Evidence, report: Report) -> Report:
    """The report with the intervals of this evidence, and the ranks and signs that follow."""
    request, lines = report.request, []
    scores = {
        (cell["row"], cell["positions"], cell["seed"]): cell[report.score]
        for cell in report.by_seed
        if cell[report.score] is not None
    }
    for line in report.lines:
        own, of_baseline = (
            {seed: score for (row, scheme, seed), score in scores.items() if (row, scheme) == (each, line["positions"])}
            for each in (line["row"], request.table.baseline)
        )
        differences = _differences(own, of_baseline) if line["row"] != request.table.baseline else []
        low, high = interval(evidence, differences) or (None, None)
        lines.append(line | {"difference_low": low, "difference_high": high})
    _rank(request, lines, report.printed)
    return replace(report, evidence=evidence, lines=lines)


def under(scheme: str, lines: Sequence[Line]) -> list[Line]:
    """The lines, of configurations or of cells, under a scheme of positions."""
    return [line for line in lines if line["positions"] == scheme]


def without_unnamed_scheme(lines: Sequence[Line]) -> list[Line]:
    """The lines as files have them: without the column `positions` if the table has no schemes."""
    return [{key: value for key, value in line.items() if key != "positions" or value} for line in lines]


def _of_row(outcomes: CellOutcomes, key: str) -> list[CellOutcome]:
    return [outcome for (row, _), outcome in outcomes.items() if row == key]


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
        }  # fmt: skip


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


def _measured_columns(
    request: Request, of: RowUnderScheme, scores_of: Mapping[str, dict[int, float]], outcomes: Sequence[CellOutcome],
    training: Training, finished: Set[int], conditions: Conditions,
) -> Line:  # fmt: skip
    baseline = request.table.baseline
    under_it = configuration_key(baseline, of.scheme)
    scores, baseline_scores = scores_of.get(of.key, {}), scores_of.get(under_it, {})
    seconds_of = conditions.step_times.seconds
    seconds, baseline_seconds = seconds_of.get(of.key, {}), seconds_of.get(under_it, {})
    values = list(scores.values())
    differences = _differences(scores, baseline_scores) if of.row != baseline else []
    results = [outcome.result for outcome in outcomes if outcome.state == "done"]
    return {
        request.budget.score_name: float(np.mean(values)) if values else None,
        "standard_error": standard_error(values) if values else None,
        "seeds": len(values),
        "of_seeds": partial_mean(scores, finished),
        **{place.rpartition(".")[2]: _mean(value_at(result, place) for result in results) for place in request.columns},
        "difference": float(np.mean(differences)) if differences else None,
        **dict.fromkeys(("difference_low", "difference_high")),  # depend on the evidence
        "difference_of_seeds": None if of.row == baseline else partial_difference(baseline, scores, baseline_scores),
        "unigram_loss": _mean(result["unigram_loss"] for result in results),
        "late_gain": training.late_gain,
        "mark": " and ".join(training.stuck.values()) or None,
        "parameters": _first(value_at(result, "parameters.total") for result in results),
        "step_seconds": median(seconds.values()) if seconds else None,
        "step_time": _ratio(seconds, baseline_seconds),
        **{name: _mean(result[name] for result in results) for name in ("steps", "tokens", "processor_seconds")},
        "peak_memory_bytes": max((result["peak_memory_bytes"] or 0 for result in results), default=0) or None,
        "state": _state(outcomes),
    }


def _differences(scores: Mapping[int, float], baseline_scores: Mapping[int, float]) -> list[float]:
    return [scores[seed] - baseline_scores[seed] for seed in scores if seed in baseline_scores]


def _ratio(of_row: Mapping[int, float], of_baseline: Mapping[int, float]) -> float | None:
    """The step time relative to the baseline's: the median of the ratios in each of the bench's rounds."""
    ratios = _ratios(of_row, of_baseline)
    return median(ratios) if ratios else None


def _ratios(of_row: Mapping[int, float], of_other: Mapping[int, float]) -> list[float]:
    return [of_row[turn] / of_other[turn] for turn in of_row if turn in of_other]


def _rank(request: Request, lines: Sequence[Line], printed: Mapping[str, dict[str, PublishedNumber]]) -> None:
    """Under each scheme, ranks among the rows that have both numbers, and whether the difference from the baseline has
    the paper's sign.

    A row whose mean covers only some of the seeds has no rank, and does not count in the ranks of others. Nor has a
    row that is alone.
    """
    for scheme in request.schemes:
        _rank_under(request, under(scheme, lines), printed)


def _rank_under(request: Request, lines: Sequence[Line], printed: Mapping[str, dict[str, PublishedNumber]]) -> None:
    score, baseline = request.budget.score_name, request.table.baseline
    theirs: dict[str, float] = {}
    if request.printed:
        metric = request.printed.metric
        theirs = {row: value for row, numbers in printed.items() if (value := numbers[metric].value) is not None}
    both = [line for line in lines if line["row"] in theirs and line[score] is not None]
    ranked = [line for line in both if not line["of_seeds"]]
    our_sign = 1 if request.budget.better == "higher" else -1
    their_sign = 1 if request.printed and request.printed.better == "higher" else -1
    for line in lines:
        row = line["row"]
        line |= {"rank": None, "published_rank": None, "rank_deviation": None, "sign": None}
        if line in ranked and len(ranked) > 1:
            line["rank"] = 1 + sum(our_sign * (other[score] - line[score]) > 0 for other in ranked)
            line["published_rank"] = 1 + sum(their_sign * (theirs[other["row"]] - theirs[row]) > 0 for other in ranked)
            line["rank_deviation"] = line["rank"] - line["published_rank"]
        if line in both and baseline in theirs and row != baseline:
            line["sign"] = _sign(line, our_sign, their_sign * (theirs[row] - theirs[baseline]))


def _sign(line: Line, our_sign: int, published_gain: float) -> str:
    low, high = line["difference_low"], line["difference_high"]
    if low is None or low <= 0 <= high or published_gain == 0:
        return "not resolved"
    return "same" if our_sign * line["difference"] * published_gain > 0 else "opposite"


def _state(outcomes: Sequence[CellOutcome]) -> str:
    done = sum(outcome.state == "done" for outcome in outcomes)
    others = distinct(outcome.state for outcome in outcomes if outcome.state != "done")
    return "done" if not others else f"{done} of {len(outcomes)} done, {', '.join(others)}"


def _first(values: Iterator[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
