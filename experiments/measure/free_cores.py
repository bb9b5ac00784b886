"""The cores of this machine, and those that other processes leave.

Two threads beside a busy core are half as fast as one (docs/performance.md).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

SHORTEST = 0.5  # seconds that tell something: the system counts in hundredths


class Cores:
    """Watches, from when it is made, the cores that this process may use."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _left()

    def left(self) -> float:
        """The average number that were idle or worked for this process since then; all of them just after it."""
        seconds = time.monotonic() - self._began
        return (_left() - self._before) / seconds if seconds >= SHORTEST else float(len(usable()))


def usable() -> list[int]:
    """The numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def cpu_field(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")


def _left() -> float:
    """Core seconds so far in which nobody worked, or this process did, or a child of it that has ended."""
    each = psutil.cpu_times(percpu=True)
    idle = sum(each[core].idle + getattr(each[core], "iowait", 0.0) for core in usable())
    return idle + sum(os.times()[:4])
