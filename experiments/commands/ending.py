"""How a command ends that the world around it ends: a signal, an output nobody reads, a refusal of the system."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Failure, shortened
from experiments.training.interruption import SIGNALS, Interrupted, handled

# of a path that the user has given
MISTAKEN_PATH_ERRORS = {errno.ENAMETOOLONG, errno.ELOOP}
# of the machine, at this moment
MACHINE_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE,
    errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV,
}  # fmt: skip
# where the output goes
OUTPUT_ERRORS = {errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF}

LONG_WORD = re.compile(r"\S{400,}")


def _interruption_behind(error: BaseException) -> Interrupted | None:
    """The signal in the middle of which a library's own cleaning up failed; None: there was none."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, Interrupted):
            return each
        seen.add(id(each))
        waiting += [next for next in (each.__cause__, each.__context__) if next is not None and id(next) not in seen]
    return None


def message_and_exit_code(error: BaseException) -> tuple[str, ExitCode] | None:
    """What to say of the end of a command, and its exit code; None: of a bug, or of an exit that was asked for."""
    if isinstance(error, Failure):
        # a value without an end, of a file that somebody else wrote, hides what is said of it
        return LONG_WORD.sub(lambda word: shortened(word[0]), str(error)), error.exit_code
    if isinstance(error, Interrupted):
        return error.reason, error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by SIGINT", ExitCode.INTERRUPTED
    # torch's own, by its name: torch is not imported before it is needed
    if type(error).__name__ == "OutOfMemoryError":
        return str(error), ExitCode.OUT_OF_MEMORY
    if not isinstance(error, OSError):
        behind = _interruption_behind(error)
        return (behind.reason, behind.exit_code) if behind else None
    reason = error.strerror or str(error)
    # of what is written into folders, the path is known and said
    if error.filename is None and error.errno in OUTPUT_ERRORS:
        _give_up_output()
        return f"the output can't be written: {reason}", ExitCode.FAILED
    if error.errno == errno.ENOENT and _folder_is_gone():
        return "the current folder has been removed; change to another", ExitCode.FAILED
    if error.filename is None or error.errno not in MISTAKEN_PATH_ERRORS | MACHINE_ERRORS:
        return None
    code = ExitCode.MISTAKE if error.errno in MISTAKEN_PATH_ERRORS else ExitCode.FAILED
    return f"{shortened(str(error.filename))}: {reason}", code


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and Ctrl-C raise Interrupted in the block, so that it puts away what it has begun.

    A SIGINT that the shell has this process ignore, as one in the background, stays ignored.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    with handled(end, [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]):
        yield


@contextmanager
def silent_on_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process within the block as it ends one that knows no Python: by the signal, without a word.

    Python's own handler would print a traceback; one of somebody else stays in its place.
    """
    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handled(signal.SIG_DFL, [signal.SIGINT] if own else []):
        yield


@contextmanager
def stdout_flushed() -> Iterator[None]:
    """What the block prints is written when it ends: an output that takes nothing is noticed in time."""
    try:
        yield
    finally:
        # None where the process began without one
        if sys.stdout is not None:
            sys.stdout.flush()


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _give_up_output() -> None:
    """Let stdout take what is left in its buffer, which Python would write when it ends, and complain."""
    if sys.stdout is not None:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
