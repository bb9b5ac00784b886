"""Signals that would interrupt a build: they take effect when the build has cleaned up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Unhandled(BaseException):
    """A signal that would have ended this process at once."""


@contextmanager
def unhandled_signals_raised() -> Iterator[None]:
    """A block that signals without a handler end with an exception; they take effect after the block has cleaned up."""
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise _Unhandled

    try:
        with suppress(_Unhandled), _handlers(end, lambda handler: handler == signal.SIG_DFL):
            yield
    finally:
        for number in dict.fromkeys(received):
            signal.raise_signal(number)


@contextmanager
def signals_held() -> Iterator[None]:
    """A block in which no handler of INTERRUPTING runs; signals that arrive are sent again after it."""
    received: list[int] = []
    try:
        with _handlers(lambda number, frame: received.append(number), callable):
            yield
    finally:
        for each in dict.fromkeys(received):
            signal.raise_signal(each)


@contextmanager
def _handlers(handler: Callable[[int, FrameType | None], object], replaces: Callable[[object], bool]) -> Iterator[None]:
    """A block in which `handler` handles those signals of INTERRUPTING whose handler it `replaces`.

    Outside the main thread, which alone runs handlers and may replace them, the block has no effect.
    """
    numbers = INTERRUPTING if threading.current_thread() is threading.main_thread() else ()
    before = {number: now for number in numbers if replaces(now := signal.getsignal(number))}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
