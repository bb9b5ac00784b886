"""The cells of a sweep, one after the other, each in a process of its own.

So a cell's peak memory is its own, and a kill or an out-of-memory ends that cell only. What it came to is read
from its run folder.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from experiments.launch.cell import finished, folder_of
from experiments.launch.child import child, why_ended
from experiments.record.folder import RunFolder
from experiments.record.result import Result
from experiments.settings.exit_code import ExitCode
from experiments.settings.mistake import Failure
from experiments.settings.run import Settings
from experiments.training.interruption import Interrupted

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: its result, or why there is none."""

    folder: RunFolder
    result: Result | None
    reason: str  # empty when done

    @property
    def done(self) -> bool:
        """Whether the cell has a result and its status is `done`."""
        return self.result is not None and self.result.status == "done"


def done_before(settings: Settings) -> Outcome | None:
    """The outcome of a cell that needs no training, or can't have any."""
    try:
        result = finished(settings)
    except Failure as error:
        return Outcome(folder_of(settings), None, str(error))
    return Outcome(folder_of(settings), result, "") if result else None


def run_cell(settings: Settings, watch: Callable[[RunFolder], None] = lambda folder: None) -> Outcome:
    """Train one cell in a process of its own and wait for it, calling `watch` now and then.

    Raises Interrupted when the sweep was told to stop; the cell has then saved and ended.
    """
    folder = folder_of(settings)
    try:
        with folder:
            folder.create(settings.model_dump())
    except Failure as error:
        return Outcome(folder, None, str(error))
    path = folder.path / "output.txt"
    before = path.stat().st_size if path.exists() else 0  # what earlier attempts said
    # the open pipe tells the cell that its sweep is alive: when it closes, the cell saves and ends
    with (
        path.open("a+", encoding="utf-8", errors="replace") as output,
        subprocess.Popen(
            **child("experiments.launch.cell", folder.path),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
        _forwarded(process) as received,
    ):
        while process.poll() is None:
            watch(folder)
            time.sleep(POLL_SECONDS)
        output.seek(before)
        written = output.read()
    if process.returncode == ExitCode.MISTAKE:
        folder.discard()
    if received:
        raise Interrupted(received[0])
    return _outcome(folder, process.returncode, written)


def outcome_of(folder: RunFolder, state: str) -> Outcome:
    """The outcome that a ledger tells: `done`, or the reason why not."""
    return Outcome(folder, folder.result(), "") if state == "done" else Outcome(folder, None, state)


def _outcome(folder: RunFolder, code: int, output: str) -> Outcome:
    result = folder.result()
    if code < 0 or result is None or (code != 0 and result.status == "done"):
        return Outcome(folder, None, why_ended(code, output))
    return Outcome(folder, result, "" if result.status == "done" else f"{result.status}: {result.reason}")


@contextmanager
def _forwarded(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """SIGINT and SIGTERM go on to the cell; the numbers received are in the list."""
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
