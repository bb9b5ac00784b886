"""Interleaved timing: in every round each contender goes once, so that what disturbs the machine disturbs all."""

from __future__ import annotations

import functools
import gc
import math
from typing import NamedTuple

from experiments.bench.contenders import Contender, Ready, get_ready
from experiments.measure.rates import seconds

SHORTEST = 0.05  # seconds that a timing takes at least, by repeating what is shorter
WARMUPS = 2


class Timing(NamedTuple):
    seconds: list[float]  # of one run, a round each
    kernels: list[str]  # attention kernels that ran
    tokens: int
    flops: float
    moved_bytes: float


def timed(contenders: list[Contender], rounds: int) -> list[Timing]:
    """A timing each, in the same order; the odd rounds go backwards through them."""
    ready = [get_ready(contender) for contender in contenders]
    device = contenders[0].device
    repeats = []
    for each in ready:
        once = min(seconds(each.run, device) for _ in range(WARMUPS))
        repeats.append(max(1, math.ceil(SHORTEST / once)))
    times: list[list[float]] = [[] for _ in ready]
    for number in range(rounds):
        order = range(len(ready))
        for index in order if number % 2 == 0 else reversed(order):
            gc.collect()
            times[index].append(seconds(functools.partial(_run, ready[index], repeats[index]), device) / repeats[index])
    return [
        Timing(of, each.kernels(), each.tokens, each.flops, each.moved_bytes)
        for of, each in zip(times, ready, strict=True)
    ]


def _run(ready: Ready, times: int) -> None:
    for _ in range(times):
        ready.run()
