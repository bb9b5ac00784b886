"""Tokens per second in the steady state, and the only clock that a step reads."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

WARMUP_STEPS = 5  # after every start: compilation, allocation, caches
LONGEST_MEMORY = 1000  # steps that the median looks back over


class Speed(NamedTuple):
    """Tokens per second of the steady state, None after too few steps, and how it was measured, in words."""

    tokens_per_second: float | None
    spread: float | None
    meaning: str


@dataclass
class Counted:
    """The tokens that a step reads; the step fills them in while it is timed."""

    tokens: int = 0


class Throughput:
    """Times only the steps: evaluation, checkpoints and logging are excluded.

    A step reads its loss back, so its work is included on a GPU too. `rates` [tokens/s], one for each step of the
    steady state, is the part that a checkpoint keeps.
    """

    def __init__(self, rates: list[float] | None = None) -> None:
        self.rates = deque(rates or [], maxlen=LONGEST_MEMORY)
        self._recent_tokens = 0
        self._recent_seconds = 0.0
        self.start()

    def start(self) -> None:
        """Note that the first step is about to begin."""
        self._started, self._processor_started = time.perf_counter(), time.process_time()
        self._steps = 0

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    def processor_seconds(self) -> float:
        """Seconds of processor time of all threads of this process since the start; a busy machine adds none."""
        return time.process_time() - self._processor_started

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block whose time counts neither as elapsed nor as processor time."""
        began, processor_began = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self._started += time.perf_counter() - began
            self._processor_started += time.process_time() - processor_began

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
        """The speed of the steady state, and how it was measured."""
        if len(self.rates) < 2:
            return Speed(None, None, f"not measured: fewer than {WARMUP_STEPS + 2} steps in one go")
        return Speed(
            statistics.median(self.rates),
            spread(self.rates),
            f"non-padding tokens of a step / its seconds: median of {len(self.rates)} steps and distance between their "
            f"quartiles, without the first {WARMUP_STEPS} steps of a start, evaluation, checkpoints and logging",
        )


def spread(values: Collection[float]) -> float:
    """The distance between the quartiles; 0 for a single value.

    The values are all that there are, not a sample, so the quartiles lie among them.
    """
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low
