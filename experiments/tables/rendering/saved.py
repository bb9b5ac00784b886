"""The report as JSON and Markdown in `tables/` of the runs' folder, where the comparison page and W&B's report read
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.display.rows import readable
from experiments.files.durable import folder_for, write, write_sealed
from experiments.record.folder import RENDERED
from experiments.tables.definition.request import portable_settings
from experiments.tables.rendering.columns import readable_table
from experiments.tables.rendering.render import render
from experiments.tables.rendering.sentences import (
    closing_sentence,
    details,
    headline,
    legend,
    missing,
    shown_or_claimed,
    summary,
)
from experiments.tables.report import Report


def save(report: Report, runs: Path) -> None:
    """Write the JSON and the Markdown of a table at a budget, and replace earlier ones. Raises DiskError."""
    folder, request = runs / RENDERED, report.request
    folder_for(folder)
    write_sealed(folder / f"{request.stem}.json", as_json(report))
    write(folder / f"{request.stem}.md", render(report, "markdown"))


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as text, as a reader sees it."""
    request, rows = report.request, readable_table(report)
    return {
        "name": " ".join([request.name, *request.options, *portable_settings(request.overrides)]),
        "budget": request.budget_name,
        "title": request.table.title,
        "shows": " ".join(filter(None, [shown_or_claimed(report), headline(report), missing(report)])),
        "tables": [[{key: readable(key, row[key]) for key in row} for row in rows]],
        "notes": [*legend(report), *report.notes, *([closing_sentence(report)] if report.verdicts else [])],
        "claims": [
            {"key": verdict.key, "says": summary(verdict), "word": verdict.word,
             "lines": [line.strip() for line in details(verdict, report)]}
            for verdict in report.verdicts
        ],
        "facts": [*report.facts],
    }  # fmt: skip
