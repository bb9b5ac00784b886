"""What goes wrong with data, said so that the reader knows what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OTHER_DATA = "data=python_docs needs no network; data=text data.train=FILE reads a text of your own"
OTHER_PAIRS = "data=pairs data.train=FILE reads pairs of your own"


class DataError(ValueError):
    """A corpus, tokenizer or cache that cannot be used as it was asked for: a message of one line."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` (nearest: b)`: the known name that is most like `name`."""
    return "".join(f" (nearest: {close})" for close in difflib.get_close_matches(name, known, n=1, cutoff=0))


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; there is a, b, c (nearest: b)`, for a message about a name that is not among the known ones."""
    names = sorted(known)
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; there is {shown}" + (nearest(name, names) if len(names) > 1 else "") if names else ""


def first_line(error: BaseException) -> str:
    """The first line of a library's message, or the kind of error when it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
