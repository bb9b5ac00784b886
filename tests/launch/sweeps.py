"""What tests of sweeps in other processes share: the process, the words of its command, and how far its cells are."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.measure.cores import usable
from experiments.record.folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]


def instead(words: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The words, and the usual ones of other keys."""
    keys = {word.partition("=")[0] for word in words}
    return [*words, *(word for word in usual if word.partition("=")[0] not in keys)]


@contextmanager
def sweep_process(
    launcher: Sequence[str], usual: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """sweep(*words): the process of a sweep in a folder, by a launcher; the words stand in place of the usual ones.

    Processes that still run at the end are killed.
    """
    processes = []

    def begin(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "cli.py"), "train", "-m", *launcher, *instead(words, usual)],
            cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    try:
        yield begin
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def until(true: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is true, which it must be within this time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def runs(folder: Path) -> list[RunFolder]:
    """The runs of plain heads that were begun in a folder, by name."""
    return [RunFolder(path) for path in sorted((folder / "runs").glob("multi_head-*"))]


def check_reserved(folder: Path) -> None:
    """Check that cells whose temporary folder this was have reserved cores of this machine."""
    reserved = {path.name for path in folder.glob("attn-reservations-*/core-*")}
    assert reserved and reserved <= {f"core-{core}" for core in usable()}


def statuses(folder: Path) -> list[str | None]:
    """Their statuses; None of a run that has no result."""
    return [(result := run.result()) and result.status for run in runs(folder)]
