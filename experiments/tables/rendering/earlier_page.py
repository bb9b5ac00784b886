"""The pages that a folder already has: only the same settings may replace that of a table, and nothing a page of the
user's own.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from experiments.failures.failure import Mistake
from experiments.tables.archive import overrides_of
from experiments.tables.definition.request import Request, portable_overrides
from experiments.tables.rendering.index import INDEX, WRITER


def check_earlier_page(request: Request, folder: Path) -> None:
    """Raises Mistake if the folder's page of this table was made with other settings than those of the request, or if
    the numbers beside it have changed since; and if the list of results would replace a page that is no such list.

    More or other seeds of the same settings may replace it.
    """
    index = folder / INDEX
    if index.is_file() and WRITER.encode() not in index.read_bytes():
        raise Mistake(
            f"--out {folder}: the list of results would replace {index}, which attn has not written",
            "name another folder; it is made if it does not exist",
        )
    numbers = folder / f"{request.result_stem}.json"
    if not numbers.is_file():
        return
    earlier = portable_overrides(overrides_of(numbers))
    if set(earlier) != set(portable_overrides(request.overrides)):
        made = f"with {shlex.join(earlier)}" if earlier else "without overrides"
        page = numbers.with_suffix(".md").name
        raise Mistake(f"--out {folder}: {page} there was made {made}", "name another folder for other settings")
