"""Words of messages: the nearest known word, lists and plurals, and texts of a length that can be read."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most similar to `word`, whatever the case of their letters; None if none is similar."""
    spelling = {each.casefold(): each for each in known}
    matches = difflib.get_close_matches(word.casefold(), spelling, n=1, cutoff=0.6)
    return spelling[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)` for the known word most similar to `word`; empty if none is similar.

    A word that looks the same on a screen is shown with its escapes and quotes.
    """
    close = closest(word, known)
    if close and close != word and _looks(close) == _looks(word):
        close = ascii(close)
    return f" (did you mean {close}?)" if close else ""


def _looks(word: str) -> str:
    return unicodedata.normalize("NFC", word).strip()


def plural(noun: str, count: int) -> str:
    """The noun after a number: `run` after 1, else `runs`."""
    return noun if count == 1 else f"{noun}s"


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`, of at least one part."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's message; its class's name if it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def as_yaml(value: object) -> str:
    """A value as YAML and the command line have it: null, true, 0.5, 'a text', [1, null]."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {as_yaml(each)}' for key, each in value.items())}}}"
    return (
        {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)
    )


def as_typed(value: object) -> str:
    """A value as one types it after KEY=: null, true, 64, a list as [a,b], a text without quotation marks."""
    if isinstance(value, list):
        return f"[{','.join(map(as_typed, value))}]"
    if value is None or isinstance(value, bool):
        return as_yaml(value)
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def shortened(text: str) -> str:
    """The text; if it is longer than 200 characters, only both ends."""
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"
