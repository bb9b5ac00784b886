"""The report of a table from the outcomes of its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from experiments.display.rows import Row
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.record.dotted import leaves, value_at
from experiments.record.result import Fields
from experiments.statistics.comparison import MarkKind
from experiments.statistics.marks import why_stuck
from experiments.tables.conditions import CellOutcomes, Conditions, distinct, facts_of_cells, notes_of_cells
from experiments.tables.definition.published import Published, PublishedNumber
from experiments.tables.definition.request import Configuration, Request, configuration_key
from experiments.tables.definition.table import Budget, TableRow, column_name
from experiments.tables.line import Measurements, SeedLine
from experiments.tables.report import Report, first_known, mean_of_known, ratios_by_round
from experiments.tables.seed_plan import counted_seeds, evidence_of, plan_of, plans
from experiments.tables.sources.source import CellOutcome, Outcomes, Source
from experiments.tables.step_times import NOT_MEASURED, StepTimes


def report_of_request(
    request: Request,
    source: Source,
    outcomes: Outcomes,
    published: Published | None = None,
    step_times: StepTimes = NOT_MEASURED,
    paper_differences: str = "",
) -> Report:
    """The table of the results that its cells have so far, with the seeds and the evidence that its plans allow.

    The last three arguments are those of `Conditions`. Raises Mistake as `report_of_cells` does.
    """
    checked = plans(request, source, outcomes)
    seeds = counted_seeds(request, source, outcomes, checked)
    plan = plan_of(seeds, checked)
    evidence = evidence_of(plan, source, outcomes)
    other_plans = [each for each in checked if each is not plan]
    conditions = Conditions(published, step_times, evidence, plan, other_plans, paper_differences)
    return report_of_cells(request, source, seeds, outcomes, conditions)


def report_of_cells(
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
        given={
            key: source.sizes(key) | _published_columns(published, printed.get(configuration.row))
            for key, configuration in configurations.items()
        },
        measured={key: _measured(request, each, of_rows[key], seconds) for key, each in configurations.items()},
        by_seed=list(_by_seed(request, outcomes, _scores(request.budget, outcomes))),
        stuck={key: stuck for key, of_row in of_rows.items() if (stuck := _stuck(of_row, request.budget))},
        step_seconds=seconds,
        printed=printed,
        evidence=conditions.evidence,
        plan=conditions.plan,
        facts_of_cells=list(facts_of_cells(request, outcomes, conditions)),
        notes_of_cells=list(notes_of_cells(request, outcomes, conditions.step_times)),
    )


def _check_score(request: Request, outcomes: CellOutcomes) -> None:
    """Raises Mistake if no finished cell has the score. Only a result says which numbers a function returns."""
    place, source = request.budget.score, request.table.source
    results = _results(outcomes.values())
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
    results = _results(outcomes.values())
    stand_ins = [value for result in results if budget.diverged and (value := value_at(result, budget.diverged))]
    for (row, seed), outcome in outcomes.items():
        value = value_at(outcome.result, budget.score) if outcome.state == "done" else None
        if outcome.state == "diverged" and stand_ins:
            value = min(stand_ins, key=lambda number: budget.sense * number)
        if value is not None:
            scores.setdefault(row, {})[seed] = value
    return scores


def _by_seed(request: Request, outcomes: CellOutcomes, scores: Mapping[str, dict[int, float]]) -> Iterator[SeedLine]:
    """A line for every cell."""
    configurations = request.configurations
    for (key, seed), outcome in outcomes.items():
        configuration = configurations[key]
        yield SeedLine(
            row=configuration.row,
            scheme=configuration.scheme,
            seed=seed,
            score=scores.get(key, {}).get(seed),
            unigram_loss=outcome.result["unigram_loss"],
            late_gain=outcome.result["late_gain"],
            state=outcome.state,
            machine=_machines(outcome.result),
        )


def _machines(result: Fields) -> str | None:
    """The machines on which a cell was trained and fine-tuned, with the number of threads on a CPU."""
    parts = [result, *(result.get("finetune") or {}).values()]
    starts = [start for part in parts for start in value_at(part, "environment.earlier") or ()]
    devices = (*(value_at(start, "torch.device") for start in starts), *(part["device"] for part in parts))
    return ", then ".join(distinct(devices)) or None


def _stuck(outcomes: Sequence[CellOutcome], budget: Budget) -> dict[MarkKind, str]:
    """Reasons why a row may not decide any claim, from the outcomes of its cells.

    A row is stuck if a cell diverged or ended at the plateau, or if it is not known what the last tenth of its training
    gained. Rows of computed cells have no loss of a unigram model, and no mark.
    """
    diverged = sum(outcome.state == "diverged" for outcome in outcomes)
    by_loss = budget.score == "validation_loss"
    return why_stuck(_results(outcomes), diverged, len(outcomes), by_loss=by_loss)


def _printed(rows: Mapping[str, TableRow], published: Published | None) -> dict[str, dict[str, PublishedNumber]]:
    if published is None:
        return {}
    return {
        key: {metric: published.number(row.published, metric) for metric in published.metrics}
        for key, row in rows.items()
        if row.published
    }


def _published_columns(published: Published | None, numbers: dict[str, PublishedNumber] | None) -> Row:
    if published is None:
        return {}
    columns: Row = {}
    for metric in published.metrics:
        number = numbers[metric] if numbers else PublishedNumber(None, None, "")
        columns |= {f"published_{metric}": number.value, f"published_{metric}_pm": number.spread}
        columns |= {f"published_{metric}_mark": number.mark}
    return columns


def _measured(
    request: Request,
    configuration: Configuration,
    outcomes: Sequence[CellOutcome],
    step_seconds: Mapping[str, dict[int, float]],
) -> Measurements:
    results = _results(outcomes)
    seconds = step_seconds.get(configuration.key, {})
    baseline = configuration_key(request.table.baseline, configuration.scheme)
    ratios = ratios_by_round(seconds, step_seconds.get(baseline, {}))

    def mean(place: str) -> float | None:
        return mean_of_known(value_at(result, place) for result in results)

    return Measurements(
        own={column_name(place): mean(place) for place in request.columns},
        parameters=first_known(value_at(result, "parameters.total") for result in results),
        step_seconds=median(seconds.values()) if seconds else None,
        step_time=median(ratios) if ratios else None,
        steps=mean("steps"),
        tokens=mean("tokens"),
        processor_seconds=mean("processor_seconds"),
        peak_memory_bytes=max((result["peak_memory_bytes"] or 0 for result in results), default=0) or None,
    )


def _results(outcomes: Iterable[CellOutcome]) -> list[Fields]:
    """The results of the finished cells."""
    return [outcome.result for outcome in outcomes if outcome.state == "done"]
