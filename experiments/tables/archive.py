"""The numbers of a report in one file, from which its pages can be written again when the words of pages change.

Verdicts are not among them: they are decided anew, by the present rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from experiments.failures.failure import Mistake
from experiments.files.durable import number, read_sealed, write_sealed
from experiments.statistics.evidence import Anytime, Evidence, Planned, Waiting
from experiments.tables.conditions import PLAN
from experiments.tables.definition.folder import files_start
from experiments.tables.definition.published import PublishedNumber
from experiments.tables.definition.request import Request, load
from experiments.tables.report import Line, Report, without_unnamed_scheme
from experiments.tables.seed_plan import CheckedPlan, SeedPlan, changed_since

OF_PAGE = "; of the page"  # before the name of the page that a plan is from
EVIDENCE: dict[str, Evidence] = {each.name: each for each in (Anytime(), Planned(), Waiting())}


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
            "lines": without_unnamed_scheme(report.lines),
            "by_seed": without_unnamed_scheme(report.by_seed),
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

    Seeds count as planned if their plan still describes the table. Raises Mistake if the file has changed since, or if
    its table has other rows now.
    """
    content = _content(path)
    first, last = content["seeds"]
    file = content["published_file"]
    request = Request(
        content["table"], load(content["table"]), content["budget"], range(first, last + 1), content["overrides"],
        published_file=Path(file) if file else None, names_seeds=content["names_seeds"],
        chosen_claims=content["chosen_claims"],
    )  # fmt: skip
    lines, configurations = _lines(content["lines"]), request.configurations
    present = [(configuration.row, configuration.scheme) for configuration in configurations.values()]
    if present != [(line["row"], line["positions"]) for line in lines]:
        raise Mistake(f"{path}: the rows of {request.name} have changed since", f"attn table {request.name} --out ...")
    checked, evidence = None, EVIDENCE[content["evidence"]]
    if content["plan"]:
        plan = SeedPlan(**content["plan"])
        checked = CheckedPlan(plan, changed_since(plan, request))
        evidence = Anytime() if checked.void else evidence
    # a report computes its other columns anew, in the order of these
    columns = {
        key: line | {"label": configuration.definition.label}
        for (key, configuration), line in zip(configurations.items(), lines, strict=True)
    }
    return Report(
        request,
        given=columns,
        measured=columns,
        # numbers of earlier versions have no machines
        by_seed=[cell | {"machine": cell.get("machine")} for cell in _lines(content["by_seed"])],
        stuck=content["stuck"],
        step_seconds={
            row: {int(turn): seconds for turn, seconds in of_row.items()}
            for row, of_row in content["step_seconds"].items()
        },
        printed={
            row: {metric: PublishedNumber(*each) for metric, each in of_row.items()}
            for row, of_row in content["printed"].items()
        },
        evidence=evidence,
        plan=checked,
        facts_of_cells=[(name, value) for name, value in content["facts"]],
        notes_of_cells=content["notes"],
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
        content = _content(path) if path.stem != request.result_stem else {}
        if (content.get("table"), content.get("budget")) == (request.name, request.budget_name):
            of_page = f"{OF_PAGE} {path.stem}"
            if content["plan"]:
                yield SeedPlan(**content["plan"]).says + of_page
            lines = (value for name, value in content["facts"] if name == PLAN)
            named += [line if OF_PAGE in line else line + of_page for line in lines]
    yield from named


def overrides_of(path: Path) -> list[str]:
    """The overrides of the report whose numbers `archive` wrote. Raises Mistake if the file has changed since."""
    overrides: list[str] = _content(path)["overrides"]
    return overrides


def _content(path: Path) -> dict[str, Any]:
    try:
        content = read_sealed(path)
        if "by_seed" not in content:
            raise ValueError("it has no cells of a table")
    except (OSError, ValueError) as error:
        raise Mistake(f"{path}: is not what was written: {error}") from error
    return content


def _lines(lines: list[dict[str, Any]]) -> list[Line]:
    """The lines of a report from those of a file, which have no positions in a table without schemes."""
    return [
        {key: number(value) for key, value in line.items()} | {"positions": line.get("positions", "")} for line in lines
    ]
