"""JSON and YAML from untrusted files: plain values, read quickly, or one ValueError with the reason.

Nothing in a file is executed, and no file takes long to read, whatever it contains.
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
    """The value of a JSON text. Raises ValueError, in one line, also for NaN and Infinity, which are not JSON."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except (json.JSONDecodeError, UnicodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError:
        raise ValueError("lists are nested too deeply") from None


def from_yaml(content: bytes | str) -> Any:
    """The plain values of a YAML text without aliases, because these let a few lines stand for gigabytes, and tags.

    Raises ValueError, in one line.
    """
    if len(content) > LARGEST_YAML:
        raise ValueError(f"it has {len(content):,} bytes, too many for settings")
    try:
        _check_events(content)
        value = yaml.load(content, Loader=_LOADER)
    # an OverflowError is of a number with a base of 60
    except (yaml.YAMLError, UnicodeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error
    _check_plain(value)
    return value


def _check_events(content: bytes | str) -> None:
    """Refuse aliases, tags and deep nesting, before anything is built. Raises ValueError."""
    depth = 0
    for event in yaml.parse(content, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        # the parser takes a time that is quadratic in the depth
        if depth > DEEPEST_YAML:
            raise ValueError(f"more than {DEEPEST_YAML} nested collections")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"an alias, *{event.anchor}, instead of a value")
        # the library fails in its own ways at a value that its tag does not fit
        if (tag := getattr(event, "tag", None)) is not None:
            raise ValueError(f"a tag, {tag!r}, instead of a plain value")


def _check_plain(value: Any) -> None:
    """Refuse values that JSON cannot hold: dates, sets, keys that are not text, NaN. Raises ValueError."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"a key that is not text: {key!r}")
            _check_plain(item)
    elif isinstance(value, list):
        for item in value:
            _check_plain(item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} instead of a finite number")
    elif not isinstance(value, str | int | float | None):
        raise ValueError(f"a {type(value).__name__} instead of a text or a number")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number in JSON")
