"""Setup that every process of the tests does once."""

from __future__ import annotations

import gc
import random

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


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Let a test that draws without a seed of its own draw the same numbers alone as after others."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.default_generator.manual_seed(0)
