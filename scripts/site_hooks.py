"""Hooks of mkdocs.yml.

Every page of results is in the navigation, equations become MathML, which needs no script, and links to files of the
code become names.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# a link from a page of docs/ to a file outside of it
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)]+)\)")


def on_config(config: Any, **_: Any) -> Any:
    """Put every page of a folder below that folder's index in the navigation, by the titles of the pages."""
    for section in config.nav:
        for title, entries in section.items():
            if isinstance(entries, list):
                section[title] = [with_pages_beside(entry) for entry in entries]
    return config


def with_pages_beside(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the navigation; that of the index of a folder, NAME/README.md, gets the folder's other pages."""
    ((title, index),) = entry.items()
    folder = ROOT / "docs" / index
    if folder.parent == ROOT / "docs" or folder.name != "README.md":
        return entry
    others = sorted(page.relative_to(ROOT / "docs").as_posix() for page in folder.parent.glob("*.md"))
    return {title: [index, *(page for page in others if page != index)]}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files outside of docs/, which the site doesn't have, by the files' names.

    Raises FileNotFoundError if there is no such file.
    """
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def named(match: re.Match[str]) -> str:
        path = (folder / match[2].split("#")[0]).resolve()
        if path.is_relative_to(ROOT / "docs"):
            return match[0]
        if not path.exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {match[2]}")
        return match[1] if match[1].startswith("`") else f"`{path.relative_to(ROOT)}`"

    return OUTSIDE.sub(named, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Replace LaTeX equations by MathML."""

    def mathml(match: re.Match[str]) -> str:
        return convert(html.unescape(match[3]).strip(), display="inline" if match[2] == "(" else "block")

    return EQUATION.sub(mathml, content)
