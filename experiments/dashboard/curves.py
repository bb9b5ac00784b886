"""Curves of runs, and of configurations over their seeds, thinned for a page."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.files.durable import number
from experiments.files.plain import from_json
from experiments.record.folder import METRICS
from experiments.results.index import Index
from experiments.statistics.evidence import Anytime, finite_half_width, mean_and_deviation

# points of a curve that are kept; more would exceed the pixels of a panel
POINTS = 200
LAST = ("tokens_per_second", "peak_memory_bytes", "wall_seconds", "tokens")
# places of a point, and where they stand in a line
PLACES = {"step": "step", "tokens": "tokens", "seconds": "wall_seconds"}
# numbers that follow from a loss, or are the same in every line
DERIVED = ("perplexity", "bits_per_byte", "unigram_loss")
OF_EVALUATION = "validation_"

Columns = dict[str, list[Any]]  # `step`, `tokens`, `seconds`, `loss` and what else is logged: a value a point
Curve = dict[str, Any]


def curve_of(folder: Path, index: Index) -> Curve:
    """The thinned curves of a run: see `parse_metrics`."""
    return index.read(folder / METRICS, parse_metrics) or parse_metrics(b"")


def parse_metrics(content: bytes) -> Curve:
    """Read metrics.jsonl into `training` and `validation`, each with the columns of its points.

    `lines` and `evaluations` are the numbers of points before thinning; `last` has numbers of the newest line. An
    incomplete last line is left out. Raises ValueError, in one line.
    """
    lines = [from_json(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    if not all(isinstance(line, dict) and isinstance(line.get("step"), int) for line in lines):
        raise ValueError("a line without a step")
    training = [line for line in lines if "loss" in line]
    validation = [line for line in lines if f"{OF_EVALUATION}loss" in line]
    last = {key: _finite(lines[-1].get(key)) for key in LAST} | {"steps": lines[-1]["step"]} if lines else {}
    return {
        "training": averaged(_columns(training, ""), POINTS),
        "validation": evenly_of(_columns(validation, OF_EVALUATION), POINTS),
        "lines": len(training),
        "evaluations": len(validation),
        "last": last,
    }


def mean_curve(curves: Sequence[Columns]) -> Columns:
    """The curve of a configuration: means over its runs at the steps that all of them have.

    `half` is half of the anytime-valid 95% interval of the mean loss; None if it is infinite.
    """
    if not curves or not all(curves):
        return {}
    shared = set.intersection(*(set(curve["step"]) for curve in curves))
    places = [[place for place, step in enumerate(curve["step"]) if step in shared] for curve in curves]
    mean_columns: Columns = {"step": sorted(shared)}
    in_all = set.intersection(*map(set, curves)) - {"step"}
    for key in (key for key in curves[0] if key in in_all):
        values = [[curve[key][place] for place in of] for curve, of in zip(curves, places, strict=True)]
        mean_columns[key] = [_mean(column) for column in zip(*values, strict=True)]
        if key == "loss" and len(curves) > 1:
            mean_columns["half"] = [_half(column) for column in zip(*values, strict=True)]
    return mean_columns


def averaged(columns: Columns, limit: int) -> Columns:
    """Thin to at most `limit` points: neighbours become one point with their means, at the place of the last of
    them.
    """
    size = math.ceil(len(columns.get("step", ())) / limit)
    if size <= 1:
        return columns
    return {
        key: [values[min(start + size, len(values)) - 1] for start in range(0, len(values), size)]
        if key in PLACES
        else [_mean(values[start : start + size]) for start in range(0, len(values), size)]
        for key, values in columns.items()
    }


def evenly_of(columns: Columns, limit: int) -> Columns:
    """Choose at most `limit` of the points, evenly spread, including the first and the last."""
    return {key: evenly(values, limit) for key, values in columns.items()}


def evenly(items: list[Any], limit: int) -> list[Any]:
    """Choose at most `limit` of the items, evenly spread, including the first and the last."""
    if len(items) <= limit:
        return items
    if limit == 1:
        return items[:1]
    return [items[round(place * (len(items) - 1) / (limit - 1))] for place in range(limit)]


def _columns(lines: Sequence[Mapping[str, Any]], prefix: str) -> Columns:
    """The places of the points of lines, and every number with the prefix that all of these lines have."""
    if not lines:
        return {}
    logged = [key for key, value in lines[-1].items() if isinstance(_finite(value), int | float)]
    names = {
        key.removeprefix(prefix): key
        for key in ["loss" if not prefix else f"{prefix}loss", *logged]
        if key not in PLACES.values() and key.startswith(OF_EVALUATION) == bool(prefix)
    }
    columns = PLACES | {name: key for name, key in names.items() if name not in DERIVED}
    return {name: [_finite(line.get(key)) for line in lines] for name, key in columns.items()}


def _finite(value: Any) -> float | None:
    """The number, or None if it is not finite."""
    value = number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _half(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None
    return finite_half_width(Anytime(), len(numbers), mean_and_deviation(numbers)[1])
