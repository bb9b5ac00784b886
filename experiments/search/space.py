"""The space that a search draws from: overrides of several values, in Hydra's own grammar."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep, Sweep

from experiments.config.grid import split, values_of
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean

TAGS = ("log",)


@dataclass(frozen=True)
class Choice:
    """One of several values without an order."""

    key: str
    values: tuple[str, ...]  # as overrides write them

    @property
    def ends(self) -> tuple[str, ...]:
        """The values that are checked beforehand, which are all of them."""
        return self.values

    @property
    def points(self) -> int | None:
        """The number of values; None for any number."""
        return len(self.values)

    def written(self, value: str) -> str:
        """A value in the form of an override."""
        return value

    def __str__(self) -> str:
        return f"one of {', '.join(self.values)}"


@dataclass(frozen=True)
class NumberRange:
    """A number from `low` to `high`, both included; a whole number if both are."""

    key: str
    low: float
    high: float
    step: float | None = None  # from one value to the next; None: 1, or any number between
    log: bool = False  # whether its logarithm is drawn evenly

    @property
    def whole(self) -> bool:
        """Whether the numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[str, ...]:
        """The values that are checked beforehand: the lowest and the highest, as overrides write them."""
        return self.written(self.low), self.written(self.high)

    @property
    def points(self) -> int | None:
        """The number of values; None for any number."""
        if self.low == self.high:
            return 1
        if self.step is None and not self.whole:
            return None
        return round((self.high - self.low) / (self.step or 1)) + 1

    def written(self, value: float) -> str:
        """A value in the form of an override."""
        # steps of 0.1 end in 0.3, not in 0.30000000000000004
        return repr(value) if self.step is None or self.whole else f"{value:.12g}"

    def __str__(self) -> str:
        steps = f" in steps of {self.step:.12g}" if self.step is not None else ", whole numbers" if self.whole else ""
        return f"{self.written(self.low)} to {self.written(self.high)}{steps}{', logarithmic' if self.log else ''}"


@dataclass(frozen=True)
class Space:
    """The overrides that all trials share, and those that vary."""

    fixed: tuple[str, ...]  # overrides
    parameters: tuple[Choice | NumberRange, ...]

    def overrides(self, point: Mapping[str, str]) -> list[str]:
        """The overrides of a point, which has a value for each key."""
        return [*self.fixed, *(f"{key}={value}" for key, value in point.items())]

    def ends(self) -> Iterator[dict[str, str]]:
        """Yield a point for each end of each parameter; the other parameters have their first value."""
        first = {parameter.key: parameter.ends[0] for parameter in self.parameters}
        yield first
        for parameter in self.parameters:
            for value in parameter.ends[1:]:
                yield first | {parameter.key: value}

    @property
    def points(self) -> int | None:
        """The number of points; None for any number."""
        counts = [parameter.points for parameter in self.parameters]
        return None if None in counts else math.prod(count for count in counts if count is not None)


def space_of(overrides: list[str]) -> Space:
    """The space that overrides span. Raises Mistake if none has several values, and for values that cannot be drawn."""
    fixed, several = split(overrides)
    if not several:
        raise Mistake("no override has several values", "give one: learning_rate='interval(1e-4,1e-2)' heads=3,6,12")
    return Space(tuple(fixed), tuple(_parameter(override, text) for override, text in several))


def _parameter(override: Override, text: str) -> Choice | NumberRange:
    sweep, key = override.value(), override.get_key_element()
    log = isinstance(sweep, Sweep) and _is_log(sweep, text)
    if isinstance(sweep, IntervalSweep):
        assert sweep.start is not None and sweep.end is not None
        return _checked(NumberRange(key, sweep.start, sweep.end, log=log), text)
    if isinstance(sweep, RangeSweep):
        listed = (value for each in values_of(override) if isinstance(value := each.value, int | float))
        # 0.9 that steps lead to, not 0.8999999999999999, which Optuna would not reach by them
        values = sorted(value if isinstance(value, int) else float(f"{value:.12g}") for value in listed)
        if not values:
            raise Mistake(f"{text}: lists no value")
        step = abs(sweep.step)
        whole = all(isinstance(value, int) for value in values)
        return _checked(NumberRange(key, values[0], values[-1], None if whole and step == 1 else step, log), text)
    if log:
        raise Mistake(f"{text}: the tag log works only with interval(...) and range(...)")
    # a value that is listed twice is one point, as in a grid
    written = tuple(dict.fromkeys(value.text.partition("=")[2] for value in values_of(override)))
    if not written:
        raise Mistake(f"{text}: lists no value")
    return Choice(key, written)


def _is_log(sweep: Sweep, text: str) -> bool:
    if unknown := sorted(sweep.tags - set(TAGS)):
        raise Mistake(f"{text}: there is no tag {unknown[0]!r}{did_you_mean(unknown[0], TAGS)}; the only tag is log")
    return bool(sweep.tags)


def _checked(interval: NumberRange, text: str) -> NumberRange:
    if not (math.isfinite(interval.low) and math.isfinite(interval.high) and interval.low <= interval.high):
        raise Mistake(f"{text}: the ends must be finite numbers, the lower one first")
    if interval.log and interval.low <= 0:
        raise Mistake(f"{text}: a logarithmic interval must be above 0")
    if interval.log and interval.step is not None:
        raise Mistake(f"{text}: a logarithmic range cannot have steps", "write tag(log, interval(...))")
    return interval
