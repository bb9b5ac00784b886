"""What every process that tests does once."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Leave what has been imported out of garbage collection, which would look through all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
