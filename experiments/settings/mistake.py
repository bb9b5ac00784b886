"""How a command ends when it can't do what it was asked for: in a line or two to the user, and with an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `attn`, and of the processes that it starts."""

    DONE = 0
    FAILED = 1
    MISTAKE = 2
    SWEEP_FAILED = 3
    NOT_FINITE = 4
    OUT_OF_MEMORY = 5
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """The code in a line, as `attn --help` and docs/exit_codes.md say it."""
        return MEANINGS[self]


MEANINGS = {
    ExitCode.DONE: "done, now or before",
    ExitCode.FAILED: "failed: a full disk, a kernel that gives wrong results; or a bug of attn, after its traceback",
    ExitCode.MISTAKE: "a mistake in the command line, the settings or the data",
    ExitCode.SWEEP_FAILED: "a cell of a sweep or a table failed; the same command tries it again",
    ExitCode.NOT_FINITE: "the loss is no longer finite (status nan)",
    ExitCode.OUT_OF_MEMORY: "not one sequence fits into the memory (status oom)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; the same command continues",
    ExitCode.TERMINATED: "terminated by SIGTERM; the same command continues",
}


class Failure(Exception):
    """An end that the user can do something about: a line or two, printed without a traceback, and an exit code.

    Any other exception that leaves a command is a bug.
    """

    exit_code = ExitCode.FAILED


class Mistake(Failure):
    """A mistake of the user's: a line that names the key, the value and what is allowed, and a hint what to do."""

    exit_code = ExitCode.MISTAKE

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text + (f"\n  {hint}" if hint else ""))


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)` for the known word most like `word`; empty if none is alike."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message; its class's name if it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
