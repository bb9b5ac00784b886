"""Cells side by side, each in a process of its own.

The peak memory of a cell is therefore its own, and a kill or a lack of memory ends that cell only. Its outcome is read
from its run folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import IO, NamedTuple, Protocol

from experiments.cells.assignment import Assignment
from experiments.cells.cell import folder_of
from experiments.cells.fork_server import ForkServer
from experiments.cells.outcome import Outcome, earlier_outcome
from experiments.cells.resources import ResourcePool, Resources
from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure
from experiments.processes.child import start_process, why_ended
from experiments.processes.interruption import Interrupted, handled
from experiments.record.errors import disk_errors_as_failures
from experiments.record.lock import in_use
from experiments.search.study import MedianPruner
from experiments.settings.run import Settings

POLL_SECONDS = 0.2
FAILED_AT_START = (ExitCode.FAILED, ExitCode.MISTAKE)  # for a cell that may not have begun


class Cell(NamedTuple):
    """A run to be trained, and the pruner that a search gives it."""

    settings: Settings
    pruner: MedianPruner | None = None


class Process(Protocol):
    """The process of a cell."""

    def poll(self) -> int | str | None:
        """The exit code, negative after a signal, or the reason why it is not known; None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send a signal to it."""

    def close(self) -> None:
        """Release the resources of the process. If it still runs, it saves and ends."""


class SpawnedCell:
    """A cell in a fresh interpreter. The open pipe tells it that its parent is alive.

    Raises Failure if it cannot be started.
    """

    def __init__(self, assignment: Assignment, output: IO[str]) -> None:
        gpus = {} if assignment.gpus is None else {"CUDA_VISIBLE_DEVICES": assignment.gpus}
        self._process = start_process(
            "experiments.cells.cell", assignment.to_line(), {**os.environ, **gpus},
            stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process; nothing happens if it has ended."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Close the pipe and wait for the end."""
        self._process.communicate()


class RunningCell:
    """A cell whose process has been started. Raises Failure if it cannot be started, or its folder cannot be used."""

    def __init__(self, cell: Cell, resources: Resources, at_once: int, server: ForkServer | None) -> None:
        self.settings, self.resources = cell.settings, resources
        self.folder = folder_of(self.settings)
        with self.folder:
            self.folder.create(self.settings.model_dump())
        path = self.folder.path / "output.txt"
        with disk_errors_as_failures(path):
            self._before = path.stat().st_size if path.exists() else 0  # the output of earlier attempts
            self._output = path.open("a+", encoding="utf-8", errors="replace")
        cores = resources.cores if resources.pinned else None
        # the number of a GPU counts among all that this process sees
        gpus = None if ":" in self.settings.trainer.device else resources.device
        assignment = Assignment(self.folder.path, cores, gpus, at_once, cell.pruner)
        forked = server.start(assignment) if server else None
        self.process: Process = forked or SpawnedCell(assignment, self._output)

    def outcome(self) -> Outcome | None:
        """The outcome of the cell; None while it runs."""
        if (code := self.process.poll()) is None:
            return None
        self.process.close()
        with self._output:
            self._output.seek(self._before)
            output = self._output.read()
        if isinstance(code, str):
            return Outcome(self.folder, None, code)
        if code == ExitCode.MISTAKE:
            self.folder.discard()
        # what both say goes to one file
        if code == ExitCode.FAILED and (other_outcome := self._outcome_of_another()):
            return other_outcome
        try:
            result = self.folder.result()
        except Failure as error:
            return Outcome(self.folder, None, str(error))
        # if the process did not begin, the result is that of an earlier attempt
        stale = code != 0 and result is not None and result.status == "done"
        stale |= code in FAILED_AT_START and result is not None and result.status != "failed"
        if code < 0 or result is None or stale:
            return Outcome(self.folder, None, why_ended(code, output), refused=code == ExitCode.MISTAKE)
        return Outcome(self.folder, result, "" if result.status == "done" else f"{result.status}: {result.reason}")

    def _outcome_of_another(self) -> Outcome | None:
        """The outcome if another process trains in the folder, or has finished the run in the meantime."""
        if holder := self.folder.holder():
            return Outcome(self.folder, None, in_use(self.folder.path, holder))
        return earlier_outcome(self.settings)


Watcher = Callable[[Iterable[RunningCell], bool], None]


def run_cell(settings: Settings, pool: ResourcePool | None = None) -> Outcome:
    """Train one cell in a process of its own and wait for it.

    pool: where its resources come from; without one, it has what it needs at once. Raises Interrupted if this process
    is told to stop; the cell has then saved and ended.
    """
    (outcome,) = run_cells([settings], pool or ResourcePool(1))
    return outcome


def run_cells(
    cells: Sequence[Settings],
    pool: ResourcePool,
    server: ForkServer | None = None,
    watch: Watcher = lambda running, blocked: None,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Train cells, each in a process of its own as soon as there are resources for it, and return their outcomes in
    order.

    server: forks the processes of the cells; without it, each is a fresh interpreter. watch: called at intervals with
    the running cells, and whether none runs because other processes have what the next one needs. ended: called with
    every outcome as it comes. Raises Interrupted if this process is told to stop; all cells have then saved and ended.
    """
    return run_drawn(map(Cell, cells), pool, server, watch, ended)


def run_drawn(
    cells: Iterator[Cell | None],
    pool: ResourcePool,
    server: ForkServer | None = None,
    watch: Watcher = lambda running, blocked: None,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Train cells as `run_cells` does, but draw them one by one, each when there is room for it. None means that there
    is no cell yet.
    """
    queue = _Queue(cells, pool, server, ended)
    received: list[int] = []
    with handled(lambda number, frame: received.append(number)), queue:
        forwarded = 0
        while queue.running or (not queue.drained and not received):
            if not received:
                queue.start()
            for number in received[forwarded:]:
                queue.send_signal(number)
                forwarded += 1
            queue.collect()
            watch(queue.running.values(), queue.blocked)
            if queue.running and server:
                server.wait(POLL_SECONDS)
            elif queue.running or queue.must_wait:
                time.sleep(POLL_SECONDS)
    if received:
        raise Interrupted(received[0])
    return [queue.outcomes[index] for index in range(queue.drawn)]


class _Queue:
    """Cells that wait, run or have ended, by their index. At the end of its block none runs."""

    def __init__(
        self,
        cells: Iterator[Cell | None],
        pool: ResourcePool,
        server: ForkServer | None,
        ended: Callable[[Outcome], None],
    ) -> None:
        self.running: dict[int, RunningCell] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.drawn = 0
        self.drained = False
        self.must_wait = False  # for the next cell, or for its resources
        self.blocked = False  # by other processes, which have all that the next cell could use
        self._next: Cell | None = None
        self._cells, self._pool, self._server, self._ended = cells, pool, server, ended

    def __enter__(self) -> _Queue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # all at once, as closing one waits for its end
        self.send_signal(signal.SIGTERM)
        for cell in self.running.values():
            cell.process.close()

    def start(self) -> None:
        """Start the cells for which there are resources."""
        self.must_wait = self.blocked = False
        while cell := self._draw():
            if (resources := self._pool.acquire(cell.settings)) is None:
                self.must_wait, self.blocked = True, not self.running
                return
            self._next, index = None, self.drawn
            self.drawn += 1
            try:
                self.running[index] = RunningCell(cell, resources, self._pool.at_once, self._server)
            except Failure as error:
                self._pool.release(resources)
                self._end(index, Outcome(folder_of(cell.settings), None, str(error)))

    def send_signal(self, number: int) -> None:
        """Send a signal to every cell that runs."""
        for cell in self.running.values():
            cell.process.send_signal(number)

    def collect(self) -> None:
        """Collect the cells that have ended."""
        for index, cell in [*self.running.items()]:
            if outcome := cell.outcome():
                self._pool.release(self.running.pop(index).resources)
                self._end(index, outcome)

    def _draw(self) -> Cell | None:
        """The next cell, if there is one and fewer run than allowed."""
        if self._next is None and not self.drained and len(self.running) < self._pool.at_once:
            try:
                self._next = next(self._cells)
                self.must_wait = self._next is None
            except StopIteration:
                self.drained = True
        return self._next

    def _end(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        self._ended(outcome)
