"""The runs that the page shows: results of the finished ones, the state of the others, and their thinned curves."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.display.comparison import TASK, matching, named_folders, near_value
from experiments.measure.quality import perplexity
from experiments.record.dotted import value_at
from experiments.record.durable import number
from experiments.record.folder import CONFIG, METRICS, RunFolder, parse_config
from experiments.record.index import Index
from experiments.record.marked import marked_result
from experiments.settings.mistake import Mistake
from experiments.settings.plain import from_json

# points of a curve that are kept; more than a panel has pixels for is waste
POINTS = 200
LAST = ("tokens_per_second", "peak_memory_bytes", "wall_seconds", "tokens")

Curve = dict[str, Any]


def chosen_runs(selection: list[str], runs: Path, index: Index) -> list[dict[str, Any]]:
    """A result for each run that `selection` names or matches, with its name under `run`, its folder under `folder`.

    A page is of pretraining, or of one task: fine-tuned runs are left out beside pretrained ones.
    A run that goes on, or was cut, has the numbers it has reached. Raises Mistake where no run is left, or several
    tasks are.
    """
    folders = named_folders(selection, runs) or sorted(path.parent for path in runs.glob("*/config.yaml"))
    results = list(_readable(folders, index))
    by_task: dict[str | None, list[dict[str, Any]]] = {}
    for result in matching(selection, results):
        by_task.setdefault(value_at(result, TASK["task"]), []).append(result)
    if not by_task:
        condition = f" matches {' '.join(selection)}{near_value(selection, results)}" if selection else ""
        raise Mistake(f"no run in {runs}/{condition}", "attn train makes one; --runs names another folder")
    if len(by_task) > 1 and None not in by_task:
        raise Mistake(f"these runs are of several tasks: {', '.join(sorted(map(str, by_task)))}", "choose: task=NAME")
    return by_task.get(None) or next(iter(by_task.values()))


def curve_of(folder: Path, index: Index) -> Curve:
    """The thinned curves of a run: see `parse_metrics`."""
    return index.read(folder / METRICS, parse_metrics) or parse_metrics(b"")


def parse_metrics(content: bytes) -> Curve:
    """Read metrics.jsonl into `training` and `validation`, each a list [step, tokens, seconds, loss in nats] a point;
    `lines` and `evaluations`, how many points these had before they were thinned; `last`, numbers of the newest line.

    A line that a kill cut short, or that is still being written, is left out. Raises ValueError, in one line.
    """
    lines = [from_json(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    if not all(isinstance(line, dict) and isinstance(line.get("step"), int) for line in lines):
        raise ValueError("a line without a step")
    training = [_point(line, "loss") for line in lines if "loss" in line]
    validation = [_point(line, "validation_loss") for line in lines if "validation_loss" in line]
    last = {key: _finite(lines[-1].get(key)) for key in LAST} | {"steps": lines[-1]["step"]} if lines else {}
    return {
        "training": averaged(training, POINTS),
        "validation": evenly(validation, POINTS),
        "lines": len(training),
        "evaluations": len(validation),
        "last": last,
    }


def averaged(points: list[list[Any]], limit: int) -> list[list[Any]]:
    """Thin to at most `limit` points: neighbours become one, with their mean loss, where the last of them stands."""
    size = math.ceil(len(points) / limit)
    if size <= 1:
        return points
    neighbours = [points[start : start + size] for start in range(0, len(points), size)]
    return [[*group[-1][:-1], _mean([point[-1] for point in group])] for group in neighbours]


def evenly(items: list[Any], limit: int) -> list[Any]:
    """Choose at most `limit` of the items, evenly spread, the first and the last among them."""
    if len(items) <= limit:
        return items
    return [items[round(place * (len(items) - 1) / (limit - 1))] for place in range(limit)]


def _readable(folders: list[Path], index: Index) -> Iterator[dict[str, Any]]:
    def say(line: str) -> None:
        print(line, file=sys.stderr)

    for folder in folders:
        result = marked_result(folder, index, say)
        try:
            yield (result or _unfinished(folder, index)) | {"run": folder.name, "folder": folder}
        except (OSError, ValueError) as error:
            say(f"left out: {folder}: {' '.join(str(error).split())}")


def _unfinished(folder: Path, index: Index) -> dict[str, Any]:
    """The numbers that a run has reached. Raises ValueError, OSError."""
    config = index.read(folder / CONFIG, parse_config)
    if config is None:
        raise ValueError(f"there is no {CONFIG}")
    curve = curve_of(folder, index)
    loss = curve["validation"][-1][-1] if curve["validation"] else None
    return {
        "config": config,
        "seed": config.get("seed"),
        "status": "running" if RunFolder(folder).holder() else "unfinished",
        "validation_loss": loss,
        "perplexity": None if loss is None or "task" in config else perplexity(loss),
        **curve["last"],
    }


def _point(line: dict[str, Any], loss: str) -> list[Any]:
    return [line["step"], *(_finite(line.get(key)) for key in ("tokens", "wall_seconds", loss))]


def _finite(value: Any) -> float | None:
    """None for what a picture has no place for."""
    value = number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
