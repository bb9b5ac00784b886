"""A mistake of the user's, said to a person: the key, the value, what is allowed, the nearest right word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Mistake(ValueError):
    """A mistake of the user's: a line that says what is wrong, and a hint that says what would be right."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text + (f"\n  {hint}" if hint else ""))


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""
