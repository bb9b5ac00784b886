"""The runs that a command is about: named, or chosen by their settings."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from experiments.failures.failure import Mistake, once
from experiments.failures.wording import as_typed, did_you_mean
from experiments.record.dotted import Values, keys_that_end_in, leaves, value_at
from experiments.record.result import Fields
from experiments.results.columns import COLUMNS, NAMED, place_of
from experiments.results.find import find_each, is_name


def named_folders(selection: list[str], runs: Path) -> list[Path]:
    """The run folders that items of `selection` name, each once. Raises Mistake for a name without a run."""
    return find_each((name for name in selection if is_name(name, runs)), runs)


def settings_in(selection: list[str], runs: Path) -> list[str]:
    """The items of `selection` that are key=value."""
    return [item for item in selection if not is_name(item, runs)]


def matching(selection: list[str], results: list[Fields]) -> list[Fields]:
    """The results that agree with every key=value of `selection`; key=a,b means either, and key=[a,b] a list.

    Raises Mistake.
    """
    filters = once((key, wanted) for key, equals, wanted in (item.partition("=") for item in selection) if equals)
    for key, wanted in filters.items():
        _check_filter(key, wanted, results)
    return [
        result
        for result in results
        if all(any(_matches(result, key, one) for one in _values(wanted)) for key, wanted in filters.items())
    ]


def without_match(selection: list[str], results: list[Fields]) -> str:
    """` matches heads=7 (did you mean 6?)`, for a message that no run does; empty if there are none at all.

    The hint is about the first value that is similar to one of a result.
    """
    return f" matches {' '.join(selection)}{_near_value(selection, results)}" if selection and results else ""


def _near_value(selection: list[str], results: list[Fields]) -> str:
    values = Values(results)
    for key, wanted in (item.split("=", 1) for item in selection if "=" in item):
        known = dict.fromkeys(map(as_typed, values.at(place_of(key))))
        for one in _values(wanted):
            if one not in known and (hint := did_you_mean(one, known)):
                return hint
    return ""


def _values(wanted: str) -> list[str]:
    """The values of `a,b`, of which each may be a list, `[a,b]`."""
    return re.split(r",(?![^[]*\])", wanted)


def _check_filter(key: str, wanted: str, results: list[Fields]) -> None:
    if not results or key in NAMED:
        return
    values = Values(results)
    above, _, last = place_of(key).rpartition(".")
    if not key or not any(isinstance(group, dict) and last in group for group in values.at(above)):
        settings = [result["config"] or {} for result in results]
        if places := keys_that_end_in(last, (each for config in settings for each, _ in leaves(config))):
            raise Mistake(f"{key}={wanted}: no run has such a setting (did you mean {' or '.join(places)}?)")
        known = list(dict.fromkeys([*COLUMNS, *chain.from_iterable(settings)]))
        raise Mistake(f"{key}={wanted}: no run has such a setting" + did_you_mean(key, known))
    if groups := [value for value in values.at(place_of(key)) if isinstance(value, dict)]:
        inner = "kind" if "kind" in groups[0] else next(iter(groups[0]))
        raise Mistake(f"{key}={wanted}: {key} is a group of settings", f"name one of them, such as {key}.{inner}")


def _matches(result: Fields, key: str, wanted: str) -> bool:
    value = value_at(result, place_of(key))
    if isinstance(value, bool) or value is None:
        return str(value).lower() == wanted.lower() or (value is None and wanted == "null")
    if isinstance(value, int | float):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    if isinstance(value, list):
        wanted = wanted.replace(", ", ",")
    return as_typed(value) == wanted
