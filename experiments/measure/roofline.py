"""The best rates of this machine: multiply-adds of a large product, and bytes of a large copy."""

from __future__ import annotations

from typing import NamedTuple

import torch

from experiments.measure.timing import seconds

LARGEST_PRODUCT = 1536  # rows, columns and depth
SLOW_PRODUCT = 0.02  # seconds; a product that takes longer is large enough to be timed
COPIED_BYTES = 2**27
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
    # a CPU without instructions for bf16 needs seconds for the largest product
    size = LARGEST_PRODUCT // 8
    while (product := _product_seconds(size, device, precision)) < SLOW_PRODUCT and size < LARGEST_PRODUCT:
        size *= 2
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)
    copy = min(seconds(lambda: target.copy_(source), device) for _ in range(TRIES))
    return Rates(2 * size**3 / product, 2 * COPIED_BYTES / copy)


def _product_seconds(size: int, device: torch.device, precision: str) -> float:
    """The time of the fastest of several products of two matrices [size, size]."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2))
    return min(seconds(lambda: left @ right, device) for _ in range(TRIES))
