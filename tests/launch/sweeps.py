"""What tests of sweeps in other processes ask: the words of a command, and how far its cells are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.record.folder import RunFolder


def instead(words: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The words, and the usual ones of other keys."""
    keys = {word.partition("=")[0] for word in words}
    return [*words, *(word for word in usual if word.partition("=")[0] not in keys)]


def until(true: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is true, which it must be within this time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def runs(folder: Path) -> list[RunFolder]:
    """The runs of plain heads that were begun in a folder, by name."""
    return [RunFolder(path) for path in sorted((folder / "runs").glob("multi_head-*"))]


def statuses(folder: Path) -> list[str | None]:
    """Their statuses; None of a run that has no result."""
    return [(result := run.result()) and result.status for run in runs(folder)]
