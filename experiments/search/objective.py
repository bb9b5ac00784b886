"""The objectives of a search: numbers of `result.json`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.record.result import Result

# the fields that hold a number, or numbers by part
FIELDS = tuple(
    field.name
    for field in dataclasses.fields(Result)
    if re.match(r"(dict\[str, )?(Number|int)\b", str(field.type)) and field.name != "seed"
)


def check_objectives(names: Iterable[str]) -> None:
    """Raises Mistake for a field that `result.json` does not have, or that is not a number."""
    for name in names:
        if (field := name.partition(".")[0]) not in FIELDS:
            raise Mistake(f"hydra.sweeper: result.json has no number {field!r}" + did_you_mean(field, FIELDS))


def value_of(result: Result, name: str) -> float | None:
    """The number of a field: the `total` of parts, or one part for PARTS.NAME; None if it was not measured."""
    field, _, part = name.partition(".")
    value: Any = getattr(result, field)
    return value.get(part or "total") if isinstance(value, dict) else value
