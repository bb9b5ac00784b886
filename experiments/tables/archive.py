"""The numbers of a report in one file, from which its pages can be written again when the words of pages change.

Verdicts are not among them: they are decided anew, by the present rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Literal

from experiments.display.rows import Row
from experiments.failures.failure import Mistake
from experiments.failures.wording import joined
from experiments.files.durable import number, write_sealed
from experiments.statistics.comparison import MarkKind
from experiments.statistics.evidence import Anytime, Evidence, Planned, Waiting
from experiments.tables.conditions import PLAN
from experiments.tables.definition.folder import files_start
from experiments.tables.definition.published import PublishedNumber
from experiments.tables.definition.request import Request, load
from experiments.tables.line import MEASURED, Measurements, SeedLine
from experiments.tables.report import Report
from experiments.tables.sealed_file import read_content
from experiments.tables.seed_plan import CheckedPlan, SeedPlan, changed_since

OF_PAGE = "; of the page"  # before the name of the page that a plan is from
EVIDENCE: dict[str, Evidence] = {each.name: each for each in (Anytime(), Planned(), Waiting())}


@dataclass(frozen=True)
class _Numbers:
    """The content of a file."""

    table: str
    budget: str
    seeds: tuple[int, int]  # first and last
    names_seeds: bool
    overrides: list[str]
    chosen_claims: list[str]
    published_file: str | None
    evidence: Literal["anytime", "planned", "planned, not complete"]  # keys of EVIDENCE
    plan: SeedPlan | None
    lines: list[Row]
    by_seed: list[Row]
    stuck: dict[str, Mapping[MarkKind, str]]
    step_seconds: dict[str, dict[int, float]]
    printed: dict[str, dict[str, tuple[int | float | None, int | float | None, str]]]
    facts: list[tuple[str, str]]
    notes: list[str]


def archive(report: Report, path: Path) -> None:
    """Write the numbers of a report, with a digest of the file. Raises DiskError."""
    request = report.request
    write_sealed(
        path,
        {
            "table": request.name,
            "budget": request.budget_name,
            "seeds": [request.seeds[0], request.seeds[-1]],
            "names_seeds": request.names_seeds,
            "overrides": [*request.overrides],
            "chosen_claims": [*request.chosen_claims],
            "published_file": request.published_file and request.published_file.name,
            "evidence": report.evidence.name,
            "plan": report.plan and asdict(report.plan.plan),
            "lines": report.exact_rows(),
            "by_seed": report.exact_rows_by_seed(),
            "stuck": report.stuck,
            "step_seconds": {
                row: {str(turn): seconds for turn, seconds in of_row.items()}
                for row, of_row in report.step_seconds.items()
            },
            "printed": {
                row: {metric: astuple(each) for metric, each in of_row.items()}
                for row, of_row in report.printed.items()
            },
            "facts": report.facts_of_cells,
            "notes": report.notes_of_cells,
        },
    )


def restored(path: Path) -> Report:
    """The report whose numbers `archive` wrote, with the texts of the table's present definition.

    Seeds count as planned if their plan still describes the table. Raises Mistake if the file has changed since, if it
    is of a version with other numbers, or if its table has other rows or another score now.
    """
    numbers = _read(path)
    first, last = numbers.seeds
    file = numbers.published_file
    request = Request(
        numbers.table, load(numbers.table), numbers.budget, range(first, last + 1), numbers.overrides,
        published_file=Path(file) if file else None, names_seeds=numbers.names_seeds,
        chosen_claims=numbers.chosen_claims,
    )  # fmt: skip
    lines, by_seed = _with_numbers(numbers.lines), _with_numbers(numbers.by_seed)
    _check_columns(path, request, lines, by_seed)
    checked, evidence = None, EVIDENCE[numbers.evidence]
    if numbers.plan:
        checked = CheckedPlan(numbers.plan, changed_since(numbers.plan, request))
        evidence = Anytime() if checked.void else evidence
    of_configurations = dict(zip(request.configurations, lines, strict=True))
    return Report(
        request,
        given={key: _given(line, request) for key, line in of_configurations.items()},
        measured={key: _measured(line, request) for key, line in of_configurations.items()},
        by_seed=[_seed_line(cell, request) for cell in by_seed],
        stuck=numbers.stuck,
        step_seconds=numbers.step_seconds,
        printed={
            row: {metric: PublishedNumber(*each) for metric, each in of_row.items()}
            for row, of_row in numbers.printed.items()
        },
        evidence=evidence,
        plan=checked,
        facts_of_cells=numbers.facts,
        notes_of_cells=numbers.notes,
    )


def with_plans_beside(report: Report, folder: Path) -> Report:
    """The report with all plans that the folder's other pages of its table and budget name among its facts, each once.

    Raises Mistake for numbers that have changed since.
    """
    said = [value for name, value in report.facts if name == PLAN]
    added: list[str] = []
    for line in _plans_of_pages(report.request, folder):
        if not any(line.split(";")[0] == other.split(";")[0] for other in said + added):
            added.append(line)
    return replace(report, facts_of_cells=[*report.facts_of_cells, *((PLAN, line) for line in added)])


def _plans_of_pages(request: Request, folder: Path) -> Iterator[str]:
    """Lines on the plans that other pages follow, and then on further plans that these pages name."""
    named: list[str] = []
    for path in sorted(folder.glob(f"{files_start(request.name)}*.json")):
        if path.stem == request.result_stem:
            continue
        numbers = _read(path)
        if (numbers.table, numbers.budget) == (request.name, request.budget_name):
            of_page = f"{OF_PAGE} {path.stem}"
            if numbers.plan:
                yield numbers.plan.says + of_page
            lines = (value for name, value in numbers.facts if name == PLAN)
            named += [line if OF_PAGE in line else line + of_page for line in lines]
    yield from named


def overrides_of(path: Path) -> list[str]:
    """The overrides of the report whose numbers `archive` wrote. Raises Mistake if the file has changed since."""
    return _read(path).overrides


def _read(path: Path) -> _Numbers:
    return read_content(path, _Numbers, "is not what was written")


def _check_columns(path: Path, request: Request, lines: list[Row], by_seed: list[Row]) -> None:
    """Raises Mistake if the lines are not those of the table's present rows, or lack a column that is not computed."""
    remedy = f"attn table {request.name} --out ..."
    present = [(configuration.row, configuration.scheme) for configuration in request.configurations.values()]
    if present != [(line.get("row"), line.get("positions", "")) for line in lines]:
        raise Mistake(f"{path}: the rows of {request.name} have changed since", remedy)
    score = request.budget.score_name
    of_cells = ("row", "seed", score, "unigram_loss", "late_gain", "state")
    for columns, of in (((score, *MEASURED), lines), (of_cells, by_seed)):
        if missing := [column for column in columns if any(column not in line for line in of)]:
            raise Mistake(f"{path}: has no numbers of {joined(missing)}", remedy)


def _with_numbers(rows: list[Row]) -> list[Row]:
    """The rows of a file with all their numbers; in JSON, those that are not finite are texts."""
    return [{key: number(value) for key, value in row.items()} for row in rows]


def _given(line: Row, request: Request) -> Row:
    """The columns of a line that need no result: those before its score."""
    names = list(line)
    before = names[: names.index(request.budget.score_name)]
    return {name: line[name] for name in before if name not in ("row", "positions", "label")}


def _measured(line: Row, request: Request) -> Measurements:
    return Measurements(
        own={name: line.get(name) for name in request.column_names}, **{name: line[name] for name in MEASURED}
    )


def _seed_line(cell: Row, request: Request) -> SeedLine:
    return SeedLine(
        row=cell["row"],
        scheme=cell.get("positions", ""),
        seed=cell["seed"],
        score=cell[request.budget.score_name],
        unigram_loss=cell["unigram_loss"],
        late_gain=cell["late_gain"],
        state=cell["state"],
        machine=cell.get("machine"),  # not among the numbers of earlier versions
    )
