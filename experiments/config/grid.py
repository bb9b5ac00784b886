"""The cells of a sweep: every combination of the values that overrides list.

Hydra's own sweeper reads and composes all files for each cell, which takes a third of a second. Here they are composed
once for each combination of groups. A value to which no expression refers is then inserted without composing again.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep, Transformer, ValueType
from omegaconf import OmegaConf

from experiments.config.check import from_tree
from experiments.config.compose import compose_raw, interpolated, with_values
from experiments.config.groups import conf_for_hydra, groups
from experiments.config.messages import hydra_errors_as_mistakes
from experiments.config.pretrained import READ_TO_INHERIT
from experiments.config.primary import FINETUNING, PRETRAINING, Primary
from experiments.failures.failure import Mistake
from experiments.settings.run import Settings

LIMIT = 10_000  # cells of a sweep
REMEMBERED = 256  # interpolated configurations

# where a value stands: the keys that lead to it
KeyPath = tuple[str, ...]


class SweepValue(NamedTuple):
    """One of the values that an override lists."""

    text: str  # KEY=VALUE
    value: Any


class Axis(NamedTuple):
    """An override that lists values."""

    key: str
    values: list[SweepValue]


class Combination(NamedTuple):
    """A combination of values: its settings, or the mistake in it."""

    label: str  # the overrides that tell it from the others
    outcome: Settings | Mistake


def grid(overrides: Sequence[str], primary: Primary = PRETRAINING) -> Iterator[Combination]:
    """Yield every combination of the values of the overrides; the last one changes fastest.

    Raises Mistake for more than LIMIT cells, and for values that cannot be listed.
    """
    fixed, axes = _axes(overrides)
    of_groups = [axis for axis in axes if axis.key in groups()]
    of_values = [axis for axis in axes if axis.key not in groups()]
    compositions: dict[tuple[str, ...], _Composition | Mistake] = {}
    for combination in itertools.product(*(axis.values for axis in axes)):
        chosen = dict(zip((axis.key for axis in axes), combination, strict=True))
        choices = tuple(chosen[axis.key].text for axis in of_groups)
        if choices not in compositions:
            keys, first_values = [axis.key for axis in of_values], [axis.values[0].text for axis in of_values]
            compositions[choices] = _composed([*fixed, *choices, *first_values], keys, primary)
        composition = compositions[choices]
        label = " ".join(value.text for value in combination)
        try:
            if isinstance(composition, Mistake):
                raise composition
            outcome = composition.settings({axis.key: chosen[axis.key].value for axis in of_values})
            yield Combination(label, outcome)
        except Mistake as mistake:
            yield Combination(label, mistake)


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


def _axes(overrides: Sequence[str]) -> tuple[list[str], list[Axis]]:
    """The overrides with one value, and those that list several. Raises Mistake."""
    fixed, listed = split(overrides)
    count = math.prod(_count(override, text) for override, text in listed)
    if count > LIMIT:
        raise Mistake(f"{count:,} cells: a sweep has at most {LIMIT:,}", "list fewer values, or sweep in parts")
    axes = [Axis(override.get_key_element(), list(values_of(override))) for override, _ in listed]
    if empty := [text for (_, text), axis in zip(listed, axes, strict=True) if not axis.values]:
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
        raise Mistake(f"{text}: lists no values", "a grid consists of a,b,c, range(...) or glob(...)")
    return sum(1 for _ in override.sweep_iterator())


def values_of(override: Override) -> Iterator[SweepValue]:
    """Yield the values that an override lists."""
    key = override.get_key_element()
    for element in override.sweep_iterator():
        is_plain = isinstance(element, int | float | str)
        value = (
            element if is_plain else dataclasses.replace(override, value_type=ValueType.ELEMENT, _value=element).value()
        )
        yield SweepValue(f"{key}={Transformer.str(element)}", value)


def _composed(overrides: list[str], keys: list[str], primary: Primary) -> _Composition | Mistake:
    try:
        return _Composition(overrides, keys, primary)
    except Mistake as mistake:
        return mistake


class _Composition:
    """The files of one choice of groups, into which values are put. Raises Mistake."""

    def __init__(self, overrides: list[str], keys: list[str], primary: Primary) -> None:
        self._config = compose_raw(overrides, primary)
        sources = OmegaConf.to_container(self._config, resolve=False)
        assert isinstance(sources, dict)
        leaves = dict(_leaves(sources))
        read = READ_TO_INHERIT if primary == FINETUNING else frozenset()
        self._key_paths = {
            key: key_paths for key in keys if key.split(".")[0] not in read and (key_paths := _key_paths(key, leaves))
        }
        self._interpolated: dict[str, tuple[dict[str, Any], dict[Any, Any]]] = {}

    def settings(self, values: Mapping[str, Any]) -> Settings:
        """The checked settings with these values of the keys. Raises Mistake."""
        simple = {key: value for key, value in values.items() if key in self._key_paths and _is_simple(value)}
        others = {key: value for key, value in values.items() if key not in simple}
        combination = repr(others)
        if combination not in self._interpolated:
            if len(self._interpolated) == REMEMBERED:
                self._interpolated.clear()
            with hydra_errors_as_mistakes():
                config = with_values(self._config, others.items())
            self._interpolated[combination] = interpolated(config, unchecked=self._key_paths)
        tree, sources = self._interpolated[combination]
        for key, value in simple.items():
            for key_path in self._key_paths[key]:
                tree = _replaced(tree, key_path, value)
        return from_tree(tree, sources)


def _is_simple(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and "${" not in value)


def _leaves(node: Mapping[Any, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in node.items():
        key_path = (*above, str(key))
        if isinstance(value, dict):
            yield from _leaves(value, key_path)
        else:
            yield key_path, value


def _key_paths(key: str, leaves: Mapping[KeyPath, Any]) -> list[KeyPath]:
    """The key paths of a key's value: the key itself and every key whose source is `${key}`, and so on.

    Empty if anything is, or might be, computed from it.
    """
    key_paths = [tuple(key.split("."))]
    if key_paths[0] not in leaves:
        return []
    for key_path in key_paths:
        path = ".".join(key_path)
        mentioned = re.compile(rf"\b{re.escape(key_path[-1])}\b")
        for other, source in leaves.items():
            if source == f"${{{path}}}":
                key_paths.append(other)
            elif isinstance(source, str | list) and "${" in str(source) and mentioned.search(str(source)):
                return []
    return key_paths


def _replaced(tree: dict[str, Any], key_path: KeyPath, value: object) -> dict[str, Any]:
    """The tree with another value at a key path; the original tree is unchanged."""
    first, *rest = key_path
    return tree | {first: _replaced(tree[first], tuple(rest), value) if rest else value}
