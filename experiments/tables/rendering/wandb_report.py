"""A rendered table in W&B: its numbers as tables of a W&B run, and its text in a report on all tables of the runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.config.compose import compose
from experiments.failures.failure import Failure
from experiments.record.mirrors import wandb_views as view
from experiments.record.mirrors.wandb_views import log_tables
from experiments.tables.rendering.render import claim_rows
from experiments.tables.report import Report

TITLE = "attn: the papers' tables"


def mirror(report: Report, runs: Path, say: Callable[[str], None]) -> None:
    """Log the table, offline without a login, and update the report. `say` gets a line about each."""
    logger = compose([]).logger
    tables = {"table": report.exact_rows(), "claims": claim_rows(report)}
    say(log_tables(f"table-{report.request.stem}", tables, logger.model_dump(), runs))
    try:
        of_all_tables = build_report(view.owner(logger.entity), logger.project, runs)
        say(f"W&B report: {view.save(of_all_tables, ('blocks',), runs)}")
    except Failure as error:
        say(f"the report in W&B was not updated: {error}; --render-only --wandb does it later")


def build_report(entity: str, project: str, runs: Path) -> Any:
    """The report on every table that `runs` keeps, not yet saved; needs no login."""
    import wandb_workspaces.reports.v2 as wr

    return wr.Report(
        project=project,
        entity=entity,
        title=TITLE,
        description="Published numbers beside ours, and which claims hold; made by attn table",
        blocks=[wr.TableOfContents(), *(wr.MarkdownBlock(text) for text in view.rendered_tables(runs))],
        width="fluid",
    )
