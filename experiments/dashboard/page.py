"""The comparison page as text: one HTML file with its data, style and script, that fetches nothing."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.dashboard.head_numbers import heads_of
from experiments.dashboard.runs import POINTS, averaged, chosen_runs, curve_of, evenly, parse_metrics
from experiments.display.comparison import COLUMNS, TASK, rows_of, scores_of, table_of
from experiments.record.dotted import value_at
from experiments.record.folder import RENDERED
from experiments.record.index import Index
from experiments.record.marked import CHANGED
from experiments.settings.digest import unsealed
from experiments.settings.mistake import first_line
from experiments.settings.plain import from_json

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (
    "statistics.js", "drawing.js", "chart.js", "heatmap.js", "parallel.js", "table.js", "panels.js", "heads.js",
    "paper_tables.js", "page.js",
)  # fmt: skip

# what the page shows of a run beside the columns of `attn compare`
MORE = {name: name for name in ("bits_per_byte", "flops_per_token", "tokens", "wall_seconds")}
# the most runs whose curves a page holds, and the most of their points all together
CURVES = 400
CURVE_POINTS = 40_000
# bytes of what `attn heads` measured of runs
HEADS = 800_000
# bytes of the papers' tables
TABLES = 300_000
DIGITS = 6


def page_data(selection: list[str], runs: Path, refresh: int = 0) -> dict[str, Any]:
    """What the page of the chosen runs is drawn from, ready for JSON. Raises Mistake.

    refresh: after how many seconds the page loads itself again; 0 for never.
    """
    with Index(runs) as index:
        results = chosen_runs(selection, runs, index)
        with_curves = evenly(list(range(len(results))), CURVES)
        points = max(2, min(POINTS, CURVE_POINTS // len(with_curves)))
        curves = {number: _curve(_trusted_curve(results[number], index), points) for number in with_curves}
        heads, without_heads = _heads([result["folder"] for result in results], index)
        tables, without_tables = _tables(runs / RENDERED, index)
    rows = [row | more for row, more in zip(table_of(results), rows_of(results, MORE), strict=True)]
    scores = list(scores_of(results))
    measures = {column for column, place in COLUMNS.items() if not place.startswith("config.")} - {"seed"} | set(MORE)
    measures |= set(scores)
    unigram = {result.get("unigram_loss") for result in results} - {None}
    notes = [f"Made by: {' '.join(['attn dashboard', *selection])}, from {runs}/.", *without_heads, *without_tables]
    if "objective" in rows[0]:
        notes.append("These runs have different objectives: compare losses within one of them only.")
    return {
        "columns": list(rows[0]),
        "settings": [column for column in rows[0] if column not in measures],
        "task": value_at(results[0], TASK["task"]),
        "scores": scores,
        "rows": [[_plain(value) for value in row.values()] for row in rows],
        "curves": {number: curve for number, (curve, _) in curves.items()},
        "heads": heads,
        "tables": tables,
        "points": points if any(thinned for _, thinned in curves.values()) else None,
        "unigram": unigram.pop() if len(unigram) == 1 else None,
        "notes": notes,
        "refresh": refresh,
    }


def page(data: dict[str, Any]) -> str:
    """The HTML file. Names stay text whatever they hold: no `<` of the data is left for a browser to read as a tag."""
    written = data | {"written": time.strftime("%Y-%m-%d %H:%M:%S")}
    parts = {
        "quality": "Loss" if data["task"] else "Perplexity",
        "style": (ASSETS / "page.css").read_text(encoding="utf-8"),
        "script": "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
        "data": json.dumps(written, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    text = (ASSETS / "page.html").read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def _trusted_curve(result: dict[str, Any], index: Index) -> dict[str, Any]:
    """The curve of a run; an empty one of a run that is not as it was written, which has been said."""
    return parse_metrics(b"") if result["status"] == CHANGED else curve_of(result["folder"], index)


def _curve(curve: dict[str, Any], limit: int) -> tuple[dict[str, list[list[Any]]], bool]:
    """(the curve with at most `limit` points and rounded numbers, whether points were taken away or joined)"""
    training, validation = averaged(curve["training"], limit), evenly(curve["validation"], limit)
    thinned = len(training) < curve["lines"] or len(validation) < curve["evaluations"]
    shown = {"training": training, "validation": validation}
    return {kind: [[_plain(value) for value in point] for point in points] for kind, points in shown.items()}, thinned


def _heads(folders: list[Path], index: Index) -> tuple[dict[int, Any], list[str]]:
    """What is known of the heads of as many runs as there is room for, and what to say of the others."""
    notes: list[str] = []
    fitting, others = _within(_readable_heads(folders, index, notes), HEADS)
    return fitting, notes + ([f"The heads of {others} more runs have no room here."] if others else [])


def _readable_heads(folders: list[Path], index: Index, notes: list[str]) -> Iterator[tuple[int, Any]]:
    """What was measured of the heads of each run; of files that can't be read a note, here and on stderr."""
    for number, folder in enumerate(folders):
        try:
            if heads := heads_of(folder, index):
                yield number, heads
        except (OSError, ValueError, KeyError, TypeError) as error:
            notes.append(f"Left out: {folder / 'heads'}: {first_line(error)}; attn heads writes it again.")
            print(notes[-1], file=sys.stderr)


def _tables(folder: Path, index: Index) -> tuple[list[Any], list[str]]:
    """The tables that `attn table` has rendered, the newest first, likewise."""
    newest_first = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    notes: list[str] = []
    fitting, others = _within(_readable_tables(newest_first, index, notes), TABLES)
    return list(fitting.values()), notes + ([f"{others} more tables have no room here."] if others else [])


def _readable_tables(paths: list[Path], index: Index, notes: list[str]) -> Iterator[tuple[Path, Any]]:
    """The tables that are as they were written; of each other one a note, here and on stderr."""
    for path in paths:
        try:
            yield path, index.read(path, parse_saved)
        except (OSError, ValueError) as error:
            notes.append(f"Left out: {path}: {first_line(error)}; attn table writes it again.")
            print(notes[-1], file=sys.stderr)


def parse_saved(content: bytes) -> dict[str, Any]:
    """A table that `attn table` saved. Raises ValueError."""
    return unsealed(from_json(content))


def _within(items: Iterable[tuple[Any, Any]], room: int) -> tuple[dict[Any, Any], int]:
    """Those of (key, value) whose values, as JSON, are not more than `room` bytes together; and how many others."""
    fitting, others = {}, 0
    for key, value in items:
        size = len(json.dumps(value, separators=(",", ":")))
        if size <= room:
            fitting[key] = value
            room -= size
        else:
            others += 1
    return fitting, others


def _plain(value: Any) -> Any:
    """A value that JSON can hold, numbers with as many digits as a picture needs."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
