"""Plans: seeds and comparisons that are written down before the first of the seeds is trained.

A verdict uses Student's t, whose intervals are narrower, if its seeds are exactly those of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from experiments.failures.failure import Mistake
from experiments.failures.wording import joined, plural
from experiments.files.digest import digest
from experiments.files.durable import folder_for, write_sealed
from experiments.record.code.digests import code_digests
from experiments.record.environment import STARTED
from experiments.record.folder import RENDERED
from experiments.statistics.evidence import Anytime, Evidence, Planned, Waiting
from experiments.tables.definition.overrides import deciding
from experiments.tables.definition.request import Request
from experiments.tables.sealed_file import read_content
from experiments.tables.seeds import begun_seeds, spans
from experiments.tables.sources.source import ENDED, CellOutcome, Outcomes, Source

PLANS = "plans"  # in the folder of the rendered tables
OTHER_CLAIMS = "for other claims"  # why a plan does not count that is not void
# the parts of a plan that must not have changed, in words
PARTS = {
    "definition": "the table",
    "overrides": "its overrides",
    "rows": "its rows",
    "comparisons": "its comparisons",
    "margin": "its margin",
    "cells": "the settings or the code of its cells",
    "code": "the code that trains them",
}


@dataclass(frozen=True)
class SeedPlan:
    """The content of a plan's file."""

    date: str  # UTC, ISO 8601
    table: str
    budget: str
    chosen_claims: list[str]  # empty: all that are about the budget
    overrides: list[str]  # of every cell, besides those of the table
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    rows: list[str]  # configurations
    comparisons: list[str]
    margin: float
    definition: str  # digest of how the table scores its cells and decides its claims
    cells: str  # digest of the names of all cells, which follow from their configurations
    code: str  # digest of the code that computes the rows

    @property
    def made(self) -> datetime:
        """When the plan was made."""
        return datetime.fromisoformat(self.date)

    @property
    def says(self) -> str:
        """The plan in a line."""
        first, last, count = self.seeds[0], self.seeds[-1], len(self.comparisons)
        return f"planned on {self.date[:10]}: seeds {first} to {last}, {count} {plural('comparison', count)}"


class CheckedPlan(NamedTuple):
    """A plan, and whether it counts for a request."""

    plan: SeedPlan
    void: str  # why it does not count; empty if it does

    @property
    def says(self) -> str:
        """The plan in a line. If the plan does not count, the line says why."""
        return self.plan.says + (f"; {void(self.void)}" if self.void else "")


def void(why: str) -> str:
    """What is said of a plan that does not count."""
    return why if why == OTHER_CLAIMS else f"void, because {why}"


def make_plan(request: Request, source: Source, count: int) -> Path:
    """Write down a plan for `count` seeds: those of the request if it names any, else the first ones after those that
    have begun or are planned.

    Returns the plan's file. Raises Mistake if a cell of a seed has begun, if another plan has one of the seeds, since
    one could choose between the verdicts of two plans, if `count` is not the number of the request's seeds, and for a
    single seed, whose difference has no spread.
    """
    if count < 2:
        raise Mistake(f"--plan {count}: a single seed decides nothing", "plan at least 2")
    outcomes = Outcomes(source)
    overrides = _canonical(request.overrides)
    planned = {path: plan for path, plan in _kept_plans(request).items() if _canonical(plan.overrides) == overrides}
    if request.names_seeds:
        seeds = request.seeds
        if len(seeds) != count:
            raise Mistake(
                f"--plan {count}: --seeds {request.span or len(seeds)} gives {len(seeds)} seeds; both must agree"
            )
    else:
        taken = [*begun_seeds(source, outcomes), *(seed for plan in planned.values() for seed in plan.seeds)]
        first = max(taken, default=-1) + 1
        seeds = range(first, first + count)
    if begun := sorted({cell.seed for cell in source.cells(seeds) if outcomes[cell].state != "missing"}):
        raise Mistake(f"--plan: cells of seed {', '.join(map(str, begun))} have begun already", "choose later seeds")
    for path, plan in planned.items():
        if not {*plan.seeds}.isdisjoint(seeds):
            remedy = "choose later seeds; --claim, given several times, plans several claims together"
            raise Mistake(f"--plan: {path} plans seeds {spans(plan.seeds)} already", remedy)
    path = folder_for(request.runs / RENDERED / PLANS) / f"{request.settings_stem}-{seeds[0]}-{seeds[-1]}.json"
    write_sealed(path, asdict(_plan_now(request, source, seeds)))
    return path


def plans(request: Request, source: Source, outcomes: Outcomes) -> list[CheckedPlan]:
    """The plans of this table and budget in the runs' folder, whatever their overrides.

    Raises Mistake for a file that is not a plan.
    """
    return [CheckedPlan(plan, _why_void(plan, request, source, outcomes)) for plan in _kept_plans(request).values()]


def counted_seeds(request: Request, source: Source, outcomes: Outcomes, checked: Sequence[CheckedPlan]) -> list[int]:
    """The seeds that count in a report, in order: the requested ones alone, if a plan has exactly these.

    Otherwise others count too if they have begun, because nobody may choose between seeds: those before the requested
    ones, and if the user named none, all.

    checked: the plans of the table and budget.
    """
    if request.names_seeds and plan_of(request.seeds, checked):
        return list(request.seeds)
    planned = (seed for each in checked for seed in each.plan.seeds)
    begun = begun_seeds(source, outcomes, max([*request.seeds, *planned]))
    others = [seed for seed in begun if seed < request.seeds[0]] if request.names_seeds else begun
    return sorted({*request.seeds, *others})


def plan_of(seeds: Sequence[int], checked: Sequence[CheckedPlan]) -> CheckedPlan | None:
    """The plan that counts and whose seeds are exactly these; None if there is none."""
    return next((each for each in checked if not each.void and each.plan.seeds == list(seeds)), None)


def evidence_of(checked: CheckedPlan | None, source: Source, outcomes: Outcomes) -> Evidence:
    """Student's t if all cells of the plan are complete, and nothing is decided before; without a plan, anytime-valid
    evidence.
    """
    if checked is None:
        return Anytime()
    complete = all(outcomes[cell].state in ENDED for cell in source.cells(checked.plan.seeds))
    return Planned() if complete else Waiting()


def changed_since(plan: SeedPlan, request: Request, further: Mapping[str, object] | None = None) -> str:
    """Which parts of a table's definition a plan does not describe any more; empty if it still describes all.

    further: the present values of other parts of the plan.
    """
    now = _of_definition(request) | dict(further or {})
    if plan.chosen_claims != now["chosen_claims"]:
        return OTHER_CLAIMS
    planned = asdict(plan) | {"overrides": _canonical(plan.overrides)}
    changed = [meaning for key, meaning in PARTS.items() if key in now and planned[key] != now[key]]
    return f"{joined(changed)} changed since" if changed else ""


def _why_void(plan: SeedPlan, request: Request, source: Source, outcomes: Outcomes) -> str:
    """What has changed since a plan was made, or what was trained before it; empty if the plan counts."""
    now = _plan_now(request, source, plan.seeds)
    if why := changed_since(plan, request, {"cells": now.cells, "code": now.code}):
        return why
    starts = (start for cell in source.cells(plan.seeds) for start in _starts(outcomes[cell]))
    return "its cells were begun before it" if min(starts, default=plan.made) < plan.made else ""


def _starts(outcome: CellOutcome) -> Iterator[datetime]:
    """When a cell began and was continued, as far as it says so."""
    environment = outcome.result.get("environment") or {}
    for facts in (environment, *environment.get("earlier", ())):
        with suppress(KeyError, TypeError, ValueError):
            yield datetime.strptime(facts["started"], STARTED)


def _plan_now(request: Request, source: Source, seeds: Sequence[int]) -> SeedPlan:
    """The plan that would be made at present for these seeds."""
    settings = [each for row in request.configurations for each in source.trained(row)]
    return SeedPlan(
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        table=request.name,
        budget=request.budget_name,
        seeds=list(seeds),
        **_of_definition(request),
        cells=digest([cell.name for cell in source.cells(seeds)]),
        code=digest([code_digests(each.model_dump(), None) for each in settings]),
    )


def comparisons_of(request: Request) -> list[str]:
    """All comparisons of all claims, in order, with any margin that is not the budget's."""
    budget = request.budget
    return [
        f"{part}" + (f", margin {margin.value:g}" if (margin := budget.margin_of(part)) != budget.margin else "")
        for claim in request.claims.values()
        for part in claim.parsed()
    ]


def _of_definition(request: Request) -> dict[str, Any]:
    """The parts of a plan that follow from the definition of a table alone."""
    return {
        "chosen_claims": [*request.claims] if request.chosen_claims else [],
        "overrides": _canonical(request.overrides),
        "rows": list(request.configurations),
        "comparisons": comparisons_of(request),
        "margin": request.budget.margin.value,
        "definition": digest(_deciding(request)),
    }


def _deciding(request: Request) -> list[object]:
    """What decides, of a table's definition: how cells are scored, and how claims about them are decided.

    Rows, margin and the settings of the cells are other parts of the plan; texts decide nothing.
    """
    table, budget = request.table, request.budget
    scored = [table.source, table.baseline, budget.score, budget.better, budget.diverged, budget.finetune]
    claims = [[claim.of, claim.of_failure, [str(part) for part in claim.parsed()]] for claim in request.claims.values()]
    tuned = {key: tuning.is_fair for key, tuning in request.tunings.items()}
    return [scored, claims, tuned]


def _canonical(overrides: Sequence[str]) -> list[str]:
    """The overrides that can change a result, in one order."""
    return sorted(deciding(overrides))


def _kept_plans(request: Request) -> dict[Path, SeedPlan]:
    """All plans of this table and budget, by their files. Raises Mistake for a file that is not a plan."""
    paths = sorted((request.runs / RENDERED / PLANS).glob(f"{request.table_stem}-*.json"))
    return {path: read_content(path, SeedPlan, "is not a plan") for path in paths}
