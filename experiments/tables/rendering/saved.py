"""The report as JSON and Markdown in `tables/` of the runs' folder, where the comparison page and W&B's report read
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.display.rows import readable
from experiments.files.durable import folder_for, write, write_sealed
from experiments.record.folder import RENDERED
from experiments.tables.definition.request import portable_overrides
from experiments.tables.rendering.markdown import markdown
from experiments.tables.rendering.page import page
from experiments.tables.report import Report


def save(report: Report, runs: Path) -> None:
    """Write the JSON and the Markdown of a table at a budget, and replace earlier ones. Raises DiskError."""
    folder, request = runs / RENDERED, report.request
    folder_for(folder)
    write_sealed(folder / f"{request.stem}.json", as_json(report))
    write(folder / f"{request.stem}.md", markdown(page(report)))


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as text, as a reader sees it."""
    request, shown = report.request, page(report)
    return {
        "name": " ".join([request.name, *request.options, *portable_overrides(request.overrides)]),
        "budget": request.budget_name,
        "title": shown.title,
        "shows": " ".join(shown.opening),
        "tables": [[{key: readable(key, row[key]) for key in row} for row in shown.rows]],
        "notes": [*shown.notes, *filter(None, [shown.closing])],
        "claims": [
            {
                "key": claim.key,
                "says": f"{claim.name}: {claim.statement}",
                "word": claim.word,
                "lines": [detail.text for detail in claim.details],
            }
            for claim in shown.claims
        ],
        "facts": shown.facts,
    }
