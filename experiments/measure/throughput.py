"""Tokens per second in the steady state, and the only clock that a step reads."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

WARMUP_STEPS = 5  # after every start: compilation, allocation, caches
LONGEST_MEMORY = 1000  # steps that the median looks back over


class Speed(NamedTuple):
    """Tokens per second of the steady state, None where there were too few steps, and in words how it was measured."""

    tokens_per_second: float | None
    spread: float | None
    meaning: str


@dataclass
class Counted:
    """What a step has read, filled in by the step while it is timed."""

    tokens: int = 0


class Throughput:
    """Times the steps and nothing else: evaluation, checkpoints and logging lie outside.

    A step reads its loss back, so that on a GPU too its work is inside. `rates` [tokens/s], one a step of the steady
    state, is what a checkpoint keeps.
    """

    def __init__(self, rates: list[float] | None = None) -> None:
        self.rates = deque(rates or [], maxlen=LONGEST_MEMORY)
        self._recent_tokens = 0
        self._recent_seconds = 0.0
        self.start()

    def start(self) -> None:
        """The first step is about to be taken."""
        self._started, self._processor_started = time.perf_counter(), time.process_time()
        self._steps = 0

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    def processor_seconds(self) -> float:
        """Seconds of processor time of all threads of this process since the start: a busy machine adds none."""
        return time.process_time() - self._processor_started

    @contextmanager
    def step(self) -> Iterator[Counted]:
        """Times one step, which notes its tokens, padding not counted. A step that raises isn't counted."""
        counted = Counted()
        began = time.perf_counter()
        yield counted
        seconds = time.perf_counter() - began
        self._steps += 1
        self._recent_tokens += counted.tokens
        self._recent_seconds += seconds
        if self._steps > WARMUP_STEPS:
            self.rates.append(counted.tokens / seconds)

    def recent(self) -> float | None:
        """Tokens per second of the steps since the last call; None if there was none."""
        rate = self._recent_tokens / self._recent_seconds if self._recent_tokens else None
        self._recent_tokens, self._recent_seconds = 0, 0.0
        return rate

    def steady(self) -> Speed:
        """The speed once it is steady, and how that was measured."""
        if len(self.rates) < 2:
            return Speed(None, None, f"not measured: fewer than {WARMUP_STEPS + 2} steps in one go")
        low, middle, high = statistics.quantiles(self.rates, n=4)
        return Speed(
            middle,
            high - low,
            f"non-padding tokens of a step / its seconds: median of {len(self.rates)} steps and distance between their "
            f"quartiles, without the first {WARMUP_STEPS} steps of a start, evaluation, checkpoints and logging",
        )
