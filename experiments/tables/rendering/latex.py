"""A page as LaTeX: booktabs tables that fit its width, and its sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.display.latex import NEEDS, ragged, tabular, tex
from experiments.tables.rendering.columns import divided
from experiments.tables.rendering.page import Page
from experiments.tables.rendering.sentences import Detail

# the conditions on which verdicts rest
FACTS = ("seeds", "evidence", "plan", "margin", "margin of trends")


def latex(page: Page) -> str:
    """The table, the verdicts and the notes. They need booktabs and graphicx.

    A table that is wider than the line is scaled down to it.
    """
    lines = [f"{tex(text)}\n" for text in page.opening]
    lines += [tabular(rows, list(rows[0])) for rows in divided(page.rows)]
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
