"""The numbers of `result.json`, by the names that the objectives of a search and the scores of a table have."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from experiments.failures.wording import did_you_mean
from experiments.record.result import Result

# the fields that hold a number, or numbers by part
TYPES = {
    field.name: str(field.type)
    for field in dataclasses.fields(Result)
    if re.match(r"(dict\[str, )?(Number|int)\b", str(field.type)) and field.name != "seed"
}
FIELDS = tuple(TYPES)
BY_PART = tuple(name for name, type_ in TYPES.items() if type_.startswith("dict"))
# those that some runs never have, whatever their end; their settings say which ones they have
OF_SOME_RUNS = (
    "perplexity", "bits_per_byte", "unknown_share", "text_scores", "scored_texts", "order_loss", "order_accuracy",
    "scores",
)  # fmt: skip
PARTS = ("total", "embedding", "attention", "feed_forward", "norm", "output")  # of `parameters`


def not_one_number(place: str) -> str:
    """What is wrong with the place of one number of `result.json`, such as `parameters.attention`; else empty."""
    field, _, part = place.partition(".")
    if field not in FIELDS:
        known = did_you_mean(field, FIELDS) or f"; it has {', '.join(FIELDS)}"
        return f"result.json has no number {field!r}{known}"
    if field not in BY_PART:
        return f"{field} is one number, without {part!r}; did you mean {field}?" if part else ""
    if not part:
        total = "did you mean parameters.total?" if field == "parameters" else f"write {field}.NAME"
        return f"{field} has several numbers; {total}"
    if field == "parameters" and part not in PARTS:
        return f"parameters has no part {part!r}" + did_you_mean(part, PARTS)
    return ""


def value_of(result: Result, name: str) -> float | None:
    """The number of a field: the `total` of parts, or one part for PARTS.NAME; None if it was not measured."""
    field, _, part = name.partition(".")
    value: Any = getattr(result, field)
    return value.get(part or "total") if isinstance(value, dict) else value
