"""A page as text."""

from __future__ import annotations

import io

from rich.console import Console

from experiments.display.rows import show
from experiments.tables.rendering.page import Page

INDENT = "  "


def as_text(page: Page, console: Console | None = None) -> str:
    """Print the page on a console, or return it as wide as it needs to be."""
    out = console or Console(file=io.StringIO(), width=100)

    def say(*lines: str) -> None:
        out.print("\n".join(lines), markup=False, highlight=False, soft_wrap=not out.is_terminal)

    say(page.title, *page.opening, "")
    show(page.rows, "table", console=out)
    say("", *page.notes, "")
    for claim in page.claims:
        details = (f"{INDENT * (1 + detail.level)}{detail.text}" for detail in claim.details)
        say(f"{claim.name}: {claim.statement}", *details, "")
    if page.closing:
        say(page.closing, "")
    for name, fact in page.facts:
        say(f"{name}: {fact}")
    return out.file.getvalue() if isinstance(out.file, io.StringIO) else ""
