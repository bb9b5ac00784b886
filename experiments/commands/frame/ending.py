"""The end of a command that is not its own doing: a signal, a closed output, an error of the system."""

from __future__ import annotations

import errno
import io
import os
import re
import select
import signal
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, refusal
from experiments.failures.wording import shortened
from experiments.processes.interruption import Interrupted, discard_output, give_up_closed_terminal, handled

# of a path that the user has given
MISTAKEN_PATH_ERRORS = {errno.ENAMETOOLONG, errno.ELOOP}
# of the machine, at this moment
MACHINE_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO,
    errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT, errno.EREMOTEIO, errno.EHOSTDOWN,
}  # fmt: skip
# where the output goes
OUTPUT_ERRORS = {errno.EAGAIN, errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF}

LONG_WORD = re.compile(r"\S{400,}")


def explained(error: BaseException, typed: str) -> ExitCode | None:
    """The exit code for an error, which is explained on stderr; None for a bug.

    Nothing is said where nobody reads the output any more, as after `| head -1`.
    """
    if isinstance(error, BrokenPipeError) and _output_is_closed() and _interruption_behind(error) is None:
        _give_up_output()
        return ExitCode.CLOSED_PIPE
    ending = message_and_exit_code(error)
    if ending is None:
        return None
    line, code = ending
    if os.environ.get("ATTN_TRACEBACK") == "1":
        traceback.print_exception(error)
    else:
        print(f"{typed}: {line}", file=sys.stderr)
    return code


def message_and_exit_code(error: BaseException) -> tuple[str, ExitCode] | None:
    """The message and the exit code for the end of a command; None for a bug, and for an exit that was asked for."""
    # a library's own cleanup, or ours, may have failed during a signal
    if (behind := _interruption_behind(error)) is not None:
        return behind.reason, behind.exit_code
    if isinstance(error, Failure):
        # a value without an end, of a file that somebody else wrote, hides what is said of it
        return LONG_WORD.sub(lambda word: shortened(word[0]), str(error)), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by SIGINT", ExitCode.INTERRUPTED
    # torch's own, by its name: torch is not imported before it is needed
    if type(error).__name__ == "OutOfMemoryError":
        return str(error), ExitCode.OUT_OF_MEMORY
    if (refused := refusal(error)) is not None:
        return str(refused), refused.exit_code
    if not isinstance(error, OSError):
        return None
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
def silent_on_ctrl_c() -> Iterator[None]:
    """A block in which Ctrl-C ends the process by the signal, without a message, as it ends programs outside of Python.

    Python's own handler would print a traceback. A handler that somebody else installed stays.
    """
    with handled(signal.SIG_DFL, [signal.SIGINT] if _python_handles_ctrl_c() else []):
        yield


def end_silently_on_ctrl_c() -> None:
    """Let Ctrl-C end the process from now on as in `silent_on_ctrl_c`. For the exit, when nothing is left to save."""
    if _python_handles_ctrl_c():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def open_missing_streams() -> None:
    """Open the null device in place of stdin, stdout and stderr where this process began without them.

    The next file that is opened would get the number of a missing one, and what libraries print would go into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace"))


def write_every_letter() -> None:
    r"""Let stdout write a letter that its encoding lacks as an escape such as \xe4, as stderr does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def outlive_terminal() -> None:
    """Discard what this process writes to a terminal that was closed, where it gets no SIGHUP or ignores it.

    A pipe to which it reports on stderr, and whose reader has ended, counts as such a terminal, and sends SIGHUP.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream.isatty() or (name == "stderr" and _is_pipe(stream)):
            stream.flush()
            buffer = io.BufferedWriter(_Terminal(stream.fileno(), "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=True))


def _is_pipe(stream: Any) -> bool:
    with suppress(OSError):
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    return False


class _Terminal(io.FileIO):
    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            if error.errno == errno.EIO:
                give_up_closed_terminal()
            elif error.errno == errno.EPIPE:
                discard_output(self.fileno())
                signal.raise_signal(signal.SIGHUP)
            else:
                raise
            return len(content)


@contextmanager
def stdout_flushed() -> Iterator[None]:
    """A block whose output is written when it ends, so that an output that accepts nothing is noticed in time."""
    try:
        yield
    finally:
        sys.stdout.flush()


def _python_handles_ctrl_c() -> bool:
    """Whether SIGINT has Python's own handler."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _interruption_behind(error: BaseException) -> Interrupted | None:
    """The signal that an error is, or during which it happened; None if there was none."""
    waiting, seen = [error], set()
    while waiting:
        cause = waiting.pop()
        if isinstance(cause, Interrupted):
            return cause
        seen.add(id(cause))
        waiting += [next for next in (cause.__cause__, cause.__context__) if next is not None and id(next) not in seen]
    return None


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _output_is_closed() -> bool:
    """Whether the reader of the pipe or the socket that stdout is has closed it."""
    poll = select.poll()
    with suppress(OSError, ValueError):
        # these are reported without being asked for
        poll.register(sys.stdout.fileno(), 0)
        return bool(poll.poll(0))
    return False


def _give_up_output() -> None:
    """Discard the rest of stdout's buffer, which Python would otherwise try to write at its end, with an error
    message.
    """
    with suppress(OSError):  # it may have no descriptor
        discard_output(sys.stdout.fileno())
