"""A page as LaTeX: booktabs tables that fit its width, and its sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.display.latex import NEEDS, ragged, tabular, tex
from experiments.tables.rendering.page import Page
from experiments.tables.rendering.sentences import Detail

MOST_COLUMNS = 9  # of a table; with more, its numbers could not be read on a page
NAMES = ("row", "positions")
# besides published numbers, the columns of a second table
BESIDE = ("rank (paper's)", "parameters", "step", "memory_bytes")
# the conditions on which verdicts rest
FACTS = ("seeds", "evidence", "plan", "margin", "margin of trends")


def latex(page: Page) -> str:
    """The table, the verdicts and the notes. They need booktabs and graphicx.

    A table with many columns is divided into two, one below the other: the scores, and published numbers and costs. A
    table that is still wider than the line is scaled down to it.
    """
    lines = [f"{tex(text)}\n" for text in page.opening]
    lines += [tabular(page.rows, keys) for keys in divided(list(page.rows[0]))]
    lines += [f"{tex(text)}\n" for text in page.notes]
    if page.claims:
        facts = [Detail(0, f"{name}: {fact}") for name, fact in page.facts if name in FACTS]
        lines += [*_nested_lists(_claims(page)), "", tex(page.closing), *_nested_lists(facts)]
    return "\n".join([f"% {page.command}", f"% {page.title}", NEEDS, *ragged(lines)]) + "\n"


def _claims(page: Page) -> Iterator[Detail]:
    for claim in page.claims:
        yield Detail(0, f"{claim.name}: {claim.statement}")
        yield from (Detail(1 + detail.level, detail.text) for detail in claim.details)


def _nested_lists(details: Iterable[Detail]) -> Iterator[str]:
    """A list in which the details of a deeper level are a list below the one before them."""
    depth = 0
    for level, text in details:
        yield from (1 + level - depth) * [r"\begin{itemize}"] + (depth - 1 - level) * [r"\end{itemize}"]
        yield rf"\item {tex(text)}"
        depth = 1 + level
    yield from depth * [r"\end{itemize}"]


def divided(keys: list[str]) -> list[list[str]]:
    """The columns of each table. A second one begins with the names of the rows."""
    beside = [key for key in keys if key in BESIDE or key.startswith("published ")]
    if len(keys) <= MOST_COLUMNS or not beside:
        return [keys]
    return [[key for key in keys if key not in beside], [key for key in keys if key in (*NAMES, *beside)]]
