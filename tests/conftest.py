"""Setup that every process of the tests does once."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, which would otherwise scan them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
