"""Documents out of rows of text (lines of a file, rows of a table), and splits out of documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from experiments.files.digest import text_digest
from experiments.settings.data import Documents

SHARES = 20
LONGEST = 1 << 20  # characters; a longer document is cut after a row, so that memory stays bounded
# a title has one =, a section two or more: " = Homarus gammarus = ", " = = Description = = "
TITLE = re.compile(r"\s*= (?!=).*(?<!=) =\s*")


def group(rows: Iterable[str], documents: Documents) -> Iterator[str]:
    """The documents that the rows make, stripped of white space and never empty.

    `row`: each row is one. `blank_line`: the rows between two blank ones are one. `article`: one begins at each title
    of WikiText, a row such as ` = Homarus gammarus = ` between two blank ones; WikiText-2's splits have 600, 60 and 60.
    """
    if documents == "row":
        texts = iter(rows)
    elif documents == "blank_line":
        texts = _joined((row, _blank(row)) for row in rows)
    else:
        texts = _joined(_titled(rows))
    return filter(None, map(str.strip, texts))


def split_of(document: str, held_out: dict[str, int]) -> str:
    """The split of a document of the training text, of whose 20 shares `held_out` gives some to other splits.

    It depends only on the document's text, so copies of a document are always in the same split.
    """
    share = int(text_digest(document)[:16], 16) % SHARES
    for split, shares in held_out.items():
        if share < shares:
            return split
        share -= shares
    return "train"


def _joined(rows: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Rows joined by line feeds. A new document begins at each marked row, and when one gets too long."""
    lines: list[str] = []
    size = 0
    for row, begins in rows:
        if begins or size > LONGEST:
            yield "\n".join(lines)
            lines, size = [], 0
        if not _blank(row):
            lines.append(row.rstrip("\r\n"))
            size += len(row)
    yield "\n".join(lines)


def _titled(rows: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Every row, and whether it is a title, which is known when the next row is seen."""
    row, after_blank = "", True
    for following in rows:
        yield row, after_blank and _blank(following) and bool(TITLE.fullmatch(row))
        row, after_blank = following, _blank(row)
    yield row, False


def _blank(row: str) -> bool:
    return not row or row.isspace()
