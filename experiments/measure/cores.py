"""The cores of this machine: those that a process may use, and the time that it waited for others to release one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from experiments.failures.failure import Mistake
from experiments.measure.limits import most_cores

TASKS = Path("/proc/self/task")  # a folder for each thread of this process
BUSY = 0.1  # of its time a run waits, and says so: alone, it waits for less than a hundredth


class Neighbours:
    """The work that this machine does beside a run: other cells of its sweep, and, since this object was made, anything
    else.

    cells_at_once: the number of cells that the sweep trains side by side, including this one.
    """

    def __init__(self, cells_at_once: int = 1) -> None:
        self.cells_at_once = cells_at_once
        self._before = _worked_and_waited()

    def waited_share(self) -> float | None:
        """The share of the time in which a thread was ready but another process had its core; None if unknown."""
        now = _worked_and_waited()
        if now is None or self._before is None:
            return None
        # what a thread that has ended had counted is gone
        worked, waited = (max(0, after - before) for after, before in zip(now, self._before, strict=True))
        return waited / (worked + waited) if worked + waited else 0.0


def long_wait(waited: float | None) -> str:
    """The share of the time in which a process waited for a core, as text; empty if it does not make a machine busy."""
    return f"{waited:.0%}" if waited is not None and waited > BUSY else ""


def usable() -> list[int]:
    """The numbers of the cores that this process may use. If it has time for fewer, these are the first."""
    cores = _permitted()
    return cores[: most_cores(len(cores))]


def can_be_pinned() -> bool:
    """Whether a process may be kept to some of the `usable` cores.

    Not where a container has only time: its first cores would be those of every other container too.
    """
    return hasattr(os, "sched_setaffinity") and len(usable()) == len(_permitted())


def _permitted() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def check_threads(threads: int) -> None:
    """Raises Mistake for more threads than cores."""
    if threads > (available := len(usable())):
        raise Mistake(f"trainer.threads={threads}: this machine has {available} cores; allowed: 1 to {available}")


def cpu_field(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")


def _worked_and_waited() -> tuple[int, int] | None:
    """Nanoseconds of all threads of this process so far, as Linux's scheduler counts them; None where it doesn't."""
    if not (TASKS / str(os.getpid()) / "schedstat").exists():
        return None
    worked = waited = 0
    for task in TASKS.iterdir():
        with suppress(OSError):  # a thread that has just ended
            on_core, in_queue, _ = (task / "schedstat").read_text(encoding="ascii").split()
            worked, waited = worked + int(on_core), waited + int(in_queue)
    return worked, waited
