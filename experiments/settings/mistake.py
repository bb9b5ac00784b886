"""Ends of a command that are not bugs: a line or two for the user, and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from experiments.settings.exit_code import ExitCode


class Failure(Exception):
    """An end that the user can do something about: a line or two, printed without a traceback, and an exit code.

    Any other exception that leaves a command is a bug.
    """

    exit_code = ExitCode.FAILED


class Mistake(Failure):
    """A mistake of the user's: a line that names the key, the value and what is allowed, and a hint about what to
    do.
    """

    exit_code = ExitCode.MISTAKE

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text + (f"\n  {hint}" if hint else ""))


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most similar to `word`; None if none is similar."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)` for the known word most similar to `word`; empty if none is similar."""
    close = closest(word, known)
    return f" (did you mean {close}?)" if close else ""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message; its class's name if it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def shortened(text: str) -> str:
    """The text; if it is longer than 200 characters, only both ends."""
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"
