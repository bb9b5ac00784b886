"""Workers of joblib, of which some may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def killed_workers_endured() -> Iterator[None]:
    """A block in which Hydra's joblib launcher ends without an error if one of its workers has been killed.

    joblib then kills the other workers and their cells too, and starts no further cell.
    """
    from joblib.externals.loky import BrokenProcessPool

    with suppress(BrokenProcessPool):
        yield
