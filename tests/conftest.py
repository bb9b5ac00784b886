"""Setup that every process of the tests does once."""

from __future__ import annotations

import gc

import pytest


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, which would otherwise scan them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def forked_processes_compute_gradients():
    """Let tests fork processes that compute gradients.

    They cannot if the process's first backward pass came after a use of torch.compile (with CUDA's libraries and no
    GPU). This first one comes before.
    """
    import torch

    torch.ones(1, requires_grad=True).sum().backward()
