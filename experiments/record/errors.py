"""What goes wrong with the files of runs, as failures that say how to choose another folder for the runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.failures.failure import Failure
from experiments.files.durable import disk_errors, or_elsewhere


class RunFolderError(Failure):
    """A run folder cannot be used. The message is one line with the path, the reason, and a remedy."""


@contextmanager
def or_other_runs() -> Iterator[None]:
    """Turn a `DiskError` of the block, which writes below the folder of the runs, into a `RunFolderError`."""
    with or_elsewhere("set runs= (or --runs) to another folder", RunFolderError):
        yield


@contextmanager
def disk_errors_as_failures(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block too, which works on `path`."""
    with or_other_runs(), disk_errors(path):
        yield
