"""A page as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.display.rows import as_markdown
from experiments.tables.rendering.columns import divided
from experiments.tables.rendering.page import JudgedClaim, Page

INDENT = "    "  # Python-Markdown takes two spaces for none


def markdown(page: Page, figure: str = "") -> str:
    """The page. figure: the file of its figure; empty for none."""
    verdicts = [
        {"claim": claim.key, "what is claimed": claim.says, "verdict": f"**{claim.word}**", **claim.words}
        for claim in page.claims
    ]
    blocks = [f"# {page.title}", *page.opening, as_markdown(verdicts)]
    blocks += [f"![{page.title}]({figure})"] if figure else []
    blocks += [*map(as_markdown, divided(page.rows)), _items(page.notes)]
    if page.claims:
        blocks += ["## Claims", *map(_claim, page.claims), page.closing]
    blocks += ["## Conditions", _items(f"{name}: {fact}" for name, fact in page.facts if name != "command")]
    blocks += [f"```bash\n{page.command}\n```"]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _claim(claim: JudgedClaim) -> str:
    details = (f"{INDENT * detail.level}* {detail.text}" for detail in claim.details)
    return "\n".join([f"**{claim.name}.** {claim.statement}", "", *details])


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"* {text}" for text in texts)
