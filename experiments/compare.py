"""`attn compare`: finished runs side by side, from their result files alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.explain import Mistake, nearest
from experiments.record.folder import PLACES
from experiments.tabulate import Row, show

# column -> where it stands in a result; dotted keys of the configuration under `config`
COLUMNS = {
    "variant": "config.variant.name",
    "layers": "config.layers",
    "hidden_size": "config.hidden_size",
    "heads": "config.heads",
    "key_size": "config.key_size",
    "value_size": "config.value_size",
    "norm": "config.norm",
    "loss": "validation_loss",
    "perplexity": "perplexity",
    "unigram_loss": "unigram_loss",
    "tokens_per_second": "tokens_per_second",
    "peak_memory_bytes": "peak_memory_bytes",
    "parameters": "parameters.total",
    "steps": "steps",
    "backend": "backend",
    "seed": "seed",
    "status": "status",
    "run": "run",
}


def compare_runs(which: list[str], runs: Path, sort: str, format: str) -> None:
    """Print the runs that are named or that match every key=value; all finished ones without either. Raises Mistake."""
    filters = dict(word.split("=", 1) for word in which if "=" in word)
    named = [word for word in which if "=" not in word]
    results = [read_result(path) for name in named for path in find_runs(name, runs)] if named else list(_all(runs))
    for key in filters:
        _check_filter(key, results)
    rows = table_of([each for each in results if all(_matches(each, key, wanted) for key, wanted in filters.items())])
    if not rows:
        matching = f" matches {' '.join(which)}" if which else ""
        raise Mistake(f"no finished run in {runs}/{matching}", "attn train makes one")
    show(sorted_by(sort, rows), format)


def sorted_by(sort: str, rows: list[Row]) -> list[Row]:
    """By a column, `-column` the largest first; rows without a value last. Raises Mistake."""
    descending, column = sort.startswith("-"), sort.lstrip("-")
    if column not in rows[0]:
        hint = f"there are: {', '.join(rows[0])}"
        raise Mistake(f"--sort {column}: there is no such column" + nearest(column, rows[0]), hint)
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    return sorted(known, key=lambda row: _orderable(row[column]), reverse=descending) + unknown


def find_runs(name: str, runs: Path) -> list[Path]:
    """The finished run folders that a word names: a path, a glob, or the start of a name in `runs`. Raises Mistake."""
    path = Path(name)
    if path.is_dir():
        found = [path]
    else:
        found = sorted(folder for folder in runs.glob(f"{path.name}*") if (folder / "config.yaml").is_file())
    if not found:
        known = [folder.name for folder in runs.glob("*") if (folder / "config.yaml").is_file()]
        hint = "`attn compare` lists the finished ones"
        raise Mistake(f"there is no run {name!r} in {runs}/" + nearest(name, known), hint)
    return found


def find_run(name: str, runs: Path) -> Path:
    """The one run folder that a word names. Raises Mistake when there are several."""
    found = find_runs(name, runs)
    if len(found) > 1:
        hint = "name one: " + ", ".join(path.name for path in found[:5])
        raise Mistake(f"{name!r} is the start of {len(found)} runs", hint)
    return found[0]


def read_result(folder: Path) -> dict[str, Any]:
    """`result.json` with the folder's name under `run`. Raises Mistake."""
    path = folder / "result.json"
    try:
        return json.loads(path.read_text(encoding="utf-8")) | {"run": folder.name}
    except FileNotFoundError:
        hint = "the command that began it continues it"
        raise Mistake(f"{folder}: not finished, there is no result.json", hint) from None
    except (OSError, ValueError) as error:
        raise Mistake(f"{path}: {error}") from error


def table_of(results: list[dict[str, Any]]) -> list[Row]:
    """A row a result; a column too for every setting that tells two of them apart where no column before it does."""
    columns = {column: place for column, place in COLUMNS.items() if place.startswith("config.")} | {"seed": "seed"}
    for place in dict.fromkeys(place for result in results for place in _settings(result.get("config", {}))):
        alike: dict[str, set[str]] = {}
        for result in results:
            alike.setdefault(str(row_of(result, columns)), set()).add(str(_value(result, place)))
        if any(len(values) > 1 for values in alike.values()):
            columns[place.removeprefix("config.")] = place
    return [row_of(result, columns | COLUMNS) for result in results]


def row_of(result: dict[str, Any], columns: dict[str, str]) -> Row:
    return {column: _value(result, place) for column, place in columns.items()}


def _settings(tree: dict[str, Any], above: str = "config") -> Iterator[str]:
    """Where the settings stand that can change a result; those outside of groups first."""
    groups = [key for key, value in tree.items() if isinstance(value, dict) and key not in PLACES]
    yield from (f"{above}.{key}" for key in tree if key not in groups and key not in PLACES)
    for key in groups:
        yield from _settings(tree[key], f"{above}.{key}")


def _all(runs: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(runs.glob("*/result.json")):
        try:
            yield read_result(path.parent)
        except Mistake as damaged:
            print(f"left out: {damaged}", file=sys.stderr)


def _value(result: dict[str, Any], place: str) -> Any:
    value: Any = result
    for part in place.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _place(key: str) -> str:
    return COLUMNS.get(key, f"config.{key}")


def _check_filter(key: str, results: list[dict[str, Any]]) -> None:
    if results and key not in COLUMNS and all(_value(result, _place(key)) is None for result in results):
        known = [*COLUMNS, *(name for name in results[0].get("config", {}) if name not in COLUMNS)]
        raise Mistake(f"{key}: no run has such a setting" + nearest(key, known))


def _matches(result: dict[str, Any], key: str, wanted: str) -> bool:
    value = _value(result, _place(key))
    if isinstance(value, bool) or value is None:
        return str(value).lower() == wanted.lower() or (value is None and wanted == "null")
    if isinstance(value, int | float):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    return str(value) == wanted


def _orderable(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, int | float) else (1, str(value))
