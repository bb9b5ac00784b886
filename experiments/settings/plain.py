"""JSON and YAML that anybody may have written: plain values, soon, or one ValueError that says why not.

Nothing in a file is executed, whatever it says, and none takes long to read, whatever it holds.
"""

from __future__ import annotations

import json
import math
from typing import Any

import yaml

LARGEST_YAML = 1 << 18  # bytes; the settings of a run are 4,000
DEEPEST_YAML = 20  # collections in each other

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def from_json(content: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError, in one line; NaN and Infinity are no JSON."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("lists in lists without end") from None


def from_yaml(content: bytes | str) -> Any:
    """The plain values of a YAML text without aliases, by which a few lines can stand for gigabytes.

    Raises ValueError, in one line.
    """
    if len(content) > LARGEST_YAML:
        raise ValueError(f"it has {len(content):,} bytes, more than settings have")
    try:
        _check_events(content)
        value = yaml.load(content, Loader=_LOADER)
    except (yaml.YAMLError, UnicodeError, RecursionError, ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from error
    _check_plain(value)
    return value


def _check_events(content: bytes | str) -> None:
    """Refuse aliases and deep nesting, before anything is built. Raises ValueError."""
    depth = 0
    for event in yaml.parse(content, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        # the parser takes a time that is quadratic in the depth
        if depth > DEEPEST_YAML:
            raise ValueError(f"more than {DEEPEST_YAML} collections in each other")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"an alias, *{event.anchor}, where a value is expected")


def _check_plain(value: Any) -> None:
    """Refuse what JSON could not hold: dates, sets, keys that are no text, NaN. Raises ValueError."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"a key that is no text: {key!r}")
            _check_plain(item)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} where a number is expected")
    elif not isinstance(value, str | int | float | None):
        raise ValueError(f"a {type(value).__name__} where a text or a number is expected")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
