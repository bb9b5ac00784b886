"""The best rates of this machine: multiply-adds of a large product, and bytes of a large copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from experiments.measure.timing import seconds

SMALLEST_PRODUCT, LARGEST_PRODUCT = 256, 8192  # rows, columns and depth
SMALLEST_COPY, LARGEST_COPY = 2**27, 2**30  # bytes
LONG_ENOUGH = 0.02  # seconds; what takes longer is large enough to be timed
TRIES = 5


class Rates(NamedTuple):
    """The best of several tries, because other work on the machine can only lower a rate."""

    flops_per_second: float
    bytes_per_second: float

    def floor(self, flops: float, moved_bytes: float) -> float:
        """The least number of seconds for this many operations and bytes moved."""
        return max(flops / self.flops_per_second, moved_bytes / self.bytes_per_second)


def measure_rates(device: torch.device, precision: str) -> Rates:
    """Measure the rates. `precision`, fp32 or bf16, selects the unit that multiplies, through torch's own product."""
    # a CPU without instructions for bf16 needs minutes for the largest product, a GPU microseconds for the smallest
    size, product = _large_enough(
        lambda size: _product_seconds(size, device, precision), SMALLEST_PRODUCT, LARGEST_PRODUCT
    )
    copied, copy = _large_enough(lambda size: _copy_seconds(size, device), SMALLEST_COPY, LARGEST_COPY)
    return Rates(2 * size**3 / product, 2 * copied / copy)


def _large_enough(seconds_of: Callable[[int], float], size: int, largest: int) -> tuple[int, float]:
    """The size, doubled until the time is long enough or the size the largest, and the time."""
    while (took := seconds_of(size)) < LONG_ENOUGH and size < largest:
        size *= 2
    return size, took


def _copy_seconds(size: int, device: torch.device) -> float:
    """The time of the fastest of several copies of this many bytes."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    return min(seconds(lambda: target.copy_(source), device) for _ in range(TRIES))


def _product_seconds(size: int, device: torch.device, precision: str) -> float:
    """The time of the fastest of several products of two matrices [size, size]."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2))
    return min(seconds(lambda: left @ right, device) for _ in range(TRIES))
