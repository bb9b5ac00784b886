"""Signals that interrupt a command: a training step under way is finished and kept; anything else stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType, TracebackType

from experiments.failures.exit_code import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], object] | signal.Handlers


class Interrupted(BaseException):
    """A signal ended the run. `exit_code` is what a shell expects: 128 and the number of the signal."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reason = f"interrupted by {signal.Signals(number).name}"
        self.exit_code = ExitCode(128 + number)
        super().__init__(self.reason)


class Interruption:
    """Turns signals into Interrupted, which is raised at once, or within `deferred` only by `check`.

    A second SIGINT does not wait for `check`: somebody is impatient. A second SIGTERM or SIGHUP has no effect: all
    processes of a job receive SIGTERM from a cluster, or SIGHUP when their terminal is closed, and once more from
    their parents. A signal that Interrupted was raised for where Python drops it, as in a destructor or in the callback
    of a weak reference, is sent again. Where a library makes another error of it, that error ends the block as
    Interrupted. Outside the main thread, signals are not handled.
    """

    def __init__(self) -> None:
        self._deferring = False
        self._terminating = False
        self._pending: int | None = None
        self._raised: int | None = None
        self._block = self._listening()

    def __enter__(self) -> Interruption:
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._block.__exit__(kind, error, traceback)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A block in which the first signal waits for `check`."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    @property
    def pending(self) -> bool:
        """Whether a signal waits for `check`."""
        return self._pending is not None

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self._pending is not None:
            raise Interrupted(self._pending)

    def note(self, number: int) -> None:
        """Let a signal wait for `check`, also one that another process of the run has received."""
        if self._pending is None:
            self._pending = number

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = sys.unraisablehook
        sys.unraisablehook = partial(self._dropped, before)
        try:
            with handled(self._receive):
                yield
        except Exception as error:
            # pydantic, for example, which calls Python from Rust, drops the exception with its context
            if self._raised is None:
                raise
            raise Interrupted(self._raised) from error
        finally:
            sys.unraisablehook = before

    def _receive(self, number: int, frame: FrameType | None) -> None:
        repeated, terminates = self._terminating, number != signal.SIGINT
        self._terminating |= terminates
        if repeated and terminates:
            return
        if self._deferring and (terminates or self._pending is None):
            self.note(number)
        else:
            self._raised = number
            raise Interrupted(number)

    def _dropped(self, report: Callable[[sys.UnraisableHookArgs], object], dropped: sys.UnraisableHookArgs) -> None:
        """Send a signal again whose exception Python drops; `report` receives any other exception."""
        if not isinstance(dropped.exc_value, Interrupted):
            report(dropped)
            return
        # a moment later, because a signal that is received here is dropped again
        while True:
            self._terminating = False
            again = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), dropped.exc_value.number))
            again.daemon = True
            with suppress(Interrupted):
                again.start()
                return


@contextmanager
def handled(handler: Handler, signals: Iterable[int] = SIGNALS) -> Iterator[None]:
    """A block in which `handler` handles the signals; the previous handlers are restored when it ends.

    A signal that this process ignores stays ignored: the shell or `nohup` has arranged it. Outside the main thread,
    where Python allows no handlers, the block has no effect.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            give_up_closed_terminal()
        assert callable(handler)
        handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    installed = handle if callable(handler) else handler
    before = {each: signal.signal(each, installed) for each in signals if signal.getsignal(each) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def give_up_closed_terminal() -> None:
    """Discard the output to a terminal that was closed, which would end this process before it has saved."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            discard_output(descriptor)


def discard_output(descriptor: int) -> None:
    """Discard whatever is written to a descriptor from now on, as far as the system lets us."""
    with suppress(OSError):
        opened = os.open(os.devnull, os.O_WRONLY)
        os.dup2(opened, descriptor)
        # it is the descriptor itself if that was closed
        if opened != descriptor:
            os.close(opened)
