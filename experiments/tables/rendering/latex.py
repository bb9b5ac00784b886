"""A report as LaTeX: booktabs tables that fit the width of a page, and the report's sentences."""

from __future__ import annotations

from experiments.display.latex import NEEDS, tabular, tex
from experiments.tables.rendering.columns import readable_table
from experiments.tables.rendering.sentences import (
    closing_sentence,
    headline,
    legend,
    missing,
    shown_or_claimed,
    summary,
)
from experiments.tables.report import Report

MOST_COLUMNS = 9  # of a table; with more, its numbers could not be read on a page
NAMES = ("row", "positions")
# besides published numbers, the columns of a second table
BESIDE = ("rank (paper's)", "parameters", "step", "memory_bytes")


def latex(report: Report) -> str:
    """The table, the verdicts and the notes. They need booktabs and graphicx.

    A table with many columns is divided into two, one below the other: the scores, and published numbers and costs. A
    table that is still wider than the line is scaled down to it.
    """
    lines = [f"% {report.request.command()}", f"% {report.request.table.title}", NEEDS]
    lines += [f"{tex(text)}\n" for text in (shown_or_claimed(report), headline(report), missing(report)) if text]
    rows = readable_table(report)
    lines += [tabular(rows, keys) for keys in divided(list(rows[0]))]
    lines += [f"{tex(text)}\n" for text in [*legend(report), *report.notes]]
    if report.verdicts:
        lines += [r"\begin{itemize}", *(rf"\item {tex(summary(verdict))}" for verdict in report.verdicts)]
        lines += [r"\end{itemize}", "", f"{tex(closing_sentence(report))}"]
    return "\n".join(lines) + "\n"


def divided(keys: list[str]) -> list[list[str]]:
    """The columns of each table. A second one begins with the names of the rows."""
    beside = [key for key in keys if key in BESIDE or key.startswith("published ")]
    if len(keys) <= MOST_COLUMNS or not beside:
        return [keys]
    return [[key for key in keys if key not in beside], [key for key in keys if key in (*NAMES, *beside)]]
