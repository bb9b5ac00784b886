"""Ends of a command that are not bugs: a line or two for the user, and an exit code."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable

from experiments.failures.exit_code import ExitCode

# of what the system allows a process, whichever file or call needs it
SCARCE = {
    errno.EAGAIN: "no other process or thread can be started (ulimit -u, or a limit of the container)",
    errno.ENOMEM: "there is not enough memory (ulimit -v, a limit of the container, or other processes)",
    errno.EMFILE: "too many files are open in this process (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}
LOADER = re.compile(r"\S+\.so[.0-9]*: ")  # the start of what the system's loader of libraries says
NO_TEMPORARY = "No usable temporary directory"  # the start of what Python says


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


class OutOfMemory(Failure):
    """A process needs more memory than there is."""

    exit_code = ExitCode.OUT_OF_MEMORY


def refusal(error: BaseException) -> Failure | None:
    """The failure that an exception stands for if the system refuses this process something; None for any other.

    It is memory, processes, open files, a folder for temporary files, or a library.
    """
    lack = _lack(error)
    if lack is not None:
        return OutOfMemory(SCARCE[lack]) if lack == errno.ENOMEM else Failure(SCARCE[lack])
    if isinstance(error, OSError) and (error.strerror or "").startswith(NO_TEMPORARY):
        return Failure(f"{error.strerror}; set TMPDIR to a folder that you may write")
    if isinstance(error, (ImportError, OSError)) and LOADER.match(str(error)):
        return Failure(f"a library cannot be loaded: {error}")
    return None


def _lack(error: BaseException) -> int | None:
    """The key of SCARCE for what the process has too little of; None if the error has another reason."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    # Python's own words, for which there is no class
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return errno.EAGAIN
    # an output that does not wait for its reader has the same number, and words of its own
    if isinstance(error, OSError) and error.errno in SCARCE and error.strerror == os.strerror(error.errno):
        return error.errno
    return None


def once(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What is given for each key, from pairs of both. Raises Mistake for a key that is given twice."""
    by_key: dict[str, str] = {}
    for key, text in given:
        if key in by_key:
            raise Mistake(f"{key} is given twice: {by_key[key]} and {text}")
        by_key[key] = text
    return by_key
