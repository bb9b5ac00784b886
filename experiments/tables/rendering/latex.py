"""A report as LaTeX: booktabs tables that fit the width of a page, and the report's sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.display.latex import NEEDS, tabular, tex
from experiments.tables.rendering.columns import readable_table
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

MOST_COLUMNS = 9  # of a table; with more, its numbers could not be read on a page
NAMES = ("row", "positions")
# besides published numbers, the columns of a second table
BESIDE = ("rank (paper's)", "parameters", "step", "memory_bytes")
# the conditions on which verdicts rest
FACTS = ("seeds", "evidence", "plan", "margin", "margin of trends")


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
        facts = (f"{name}: {fact}" for name, fact in report.facts if name in FACTS)
        lines += [*itemized(_claims(report)), "", f"{tex(closing_sentence(report))}", *itemized(facts)]
    return "\n".join(lines) + "\n"


def _claims(report: Report) -> Iterator[str]:
    """The claims with their verdicts, and below each its comparisons."""
    for verdict in report.verdicts:
        yield summary(verdict)
        yield from (f"  {line}" for line in details(verdict, report))


def itemized(lines: Iterable[str]) -> list[str]:
    """Lines as a list, in which those that are indented by two spaces more are a list below the line before them."""
    written: list[str] = []
    depth = 0
    for line in [*lines, ""]:
        level = 1 + (len(line) - len(line.lstrip())) // 2 if line else 0
        written += (level - depth) * [r"\begin{itemize}"] + (depth - level) * [r"\end{itemize}"]
        written += [rf"\item {tex(line.strip())}"] if line else []
        depth = level
    return written


def divided(keys: list[str]) -> list[list[str]]:
    """The columns of each table. A second one begins with the names of the rows."""
    beside = [key for key in keys if key in BESIDE or key.startswith("published ")]
    if len(keys) <= MOST_COLUMNS or not beside:
        return [keys]
    return [[key for key in keys if key not in beside], [key for key in keys if key in (*NAMES, *beside)]]
