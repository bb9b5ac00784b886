"""The cells of a sweep: every combination of the values that overrides list."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep, Transformer, ValueType

from experiments.config.compose_many import Composer, Value
from experiments.config.groups import conf_for_hydra, groups
from experiments.config.hydra_messages import hydra_errors_as_mistakes
from experiments.config.primary import PRETRAINING, Primary
from experiments.failures.failure import Mistake
from experiments.settings.run import Settings

LIMIT = 10_000  # cells of a sweep


class Combination(NamedTuple):
    """A combination of values: its settings, or the mistake in it."""

    label: str  # the overrides that tell it from the others
    outcome: Settings | Mistake


def grid(overrides: Sequence[str], primary: Primary = PRETRAINING) -> Iterator[Combination]:
    """Yield every combination of the values of the overrides; the last one changes fastest.

    Raises Mistake for more than LIMIT cells, and for values that cannot be listed.
    """
    fixed, axes = _axes(overrides)
    composer, group_names = Composer(primary), groups()
    for combination in itertools.product(*axes):
        label = " ".join(map(_label, combination))
        options = [value.text for value in combination if value.key in group_names]
        values = [value for value in combination if value.key not in group_names]
        try:
            outcome = composer.settings([*fixed, *options], values)
        except Mistake as mistake:
            yield Combination(label, mistake)
        else:
            yield Combination(label, outcome)


def _label(value: Value) -> str:
    """The override for a person, without the escapes that Hydra's grammar may require in a text."""
    return f"{value.key}={value.value}" if isinstance(value.value, str) else value.text


def split(overrides: Sequence[str]) -> tuple[list[str], list[tuple[Override, str]]]:
    """The overrides with one value, and those with several, each with its text; without Hydra's own. Raises Mistake."""
    loader = ConfigLoaderImpl(config_search_path=create_config_search_path(conf_for_hydra()))
    with hydra_errors_as_mistakes():
        parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
    pairs = [
        (override, text) for override, text in zip(parsed, overrides, strict=True) if not override.is_hydra_override()
    ]
    fixed = [text for override, text in pairs if not override.is_sweep_override()]
    return fixed, [(override, text) for override, text in pairs if override.is_sweep_override()]


def _axes(overrides: Sequence[str]) -> tuple[list[str], list[list[Value]]]:
    """The overrides with one value, and those that list several. Raises Mistake."""
    fixed, listed = split(overrides)
    count = math.prod(_count(override, text) for override, text in listed)
    if count > LIMIT:
        raise Mistake(f"{count:,} cells: a sweep has at most {LIMIT:,}", "list fewer values, or sweep in parts")
    axes = [[*values_of(override)] for override, _ in listed]
    if empty := [text for (_, text), axis in zip(listed, axes, strict=True) if not axis]:
        raise Mistake(f"{empty[0]}: lists no value")
    return fixed, axes


def _count(override: Override, text: str) -> int:
    """The number of values, from a range's ends alone.

    Raises Mistake if a range has no end, or an end that is not a number.
    """
    sweep = override.value()
    if isinstance(sweep, RangeSweep):
        assert sweep.start is not None and sweep.stop is not None
        ends = (sweep.start, sweep.stop, sweep.step)
        if sweep.step == 0 or not all(map(math.isfinite, ends)):
            raise Mistake(f"{text}: a range needs finite ends and a step other than 0")
        return max(0, -int((sweep.start - sweep.stop) // sweep.step))
    if not override.is_discrete_sweep():
        ways = "a grid consists of a,b,c, range(...) or glob(...); hydra/sweeper=optuna_search draws from an interval"
        raise Mistake(f"{text}: lists no values", ways)
    return sum(1 for _ in override.sweep_iterator())


def values_of(override: Override) -> Iterator[Value]:
    """Yield the values that an override lists."""
    key = override.get_key_element()
    for element in override.sweep_iterator():
        is_plain = isinstance(element, int | float | str)
        value = (
            element if is_plain else dataclasses.replace(override, value_type=ValueType.ELEMENT, _value=element).value()
        )
        yield Value(key, value, f"{key}={Transformer.str(element)}")
