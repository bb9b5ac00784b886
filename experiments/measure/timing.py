"""The time of a call, its work on a GPU included."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Wall-clock time of one call, its work on a GPU included."""
    synchronize(device)
    began = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - began


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
