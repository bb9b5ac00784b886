"""The rows of a task's splits, from the hub or from local files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from experiments.data.cache import Cache
from experiments.data.errors import OTHER_EXAMPLES, DataError
from experiments.data.readers import delimited, files, hub
from experiments.settings.finetuning import Benchmark

Row = dict[str, Any]
SCORING = {"n_best", "max_answer", "window_score", "scores_of", "metrics"}  # settings that change no window
ROWS_AT_ONCE = 1024  # rows of a Parquet file in memory at once


class Place(NamedTuple):
    """The place of the examples of one split."""

    key: str  # the setting that says so
    value: str  # of it
    limit: int | None
    is_file: bool  # else the value is a split of the hub


def places(task: Benchmark) -> dict[str, Place]:
    """`train`, and the validation splits as `validation` or `validation.NAME`. Raises DataError for a file of another
    kind.
    """
    splits = {"train": Place("task.train", task.train, task.train_examples, task.is_file(task.train))}
    for name, value in task.held_out.items():
        split = f"validation.{name}" if name else "validation"
        splits[split] = Place(f"task.{split}", value, task.validation_examples, task.is_file(value))
    for place in splits.values():
        # no split of the hub is called so
        if not place.is_file and ("/" in place.value or Path(place.value).suffix):
            endings = " or ".join(task.endings)
            raise DataError(f"{place.key}={place.value}: the name of a file must end in {endings} for task={task.name}")
    return splits


def identity(task: Benchmark, cache: Cache) -> dict[str, Any]:
    """The identity of the examples, independent of their place; changes when they do.

    Raises DataError for a missing file.
    """
    of_hub = _hub(task)
    exact: dict[str, Any] = {}
    for split, place in places(task).items():
        if place.is_file:
            exact[split] = {"sha256": [cache.file_digest(path) for path in files.find(place.key, place.value)]}
        else:
            source = hub.source(of_hub, cache)
            exact[split] = {"split": place.value, **({"path": task.path} if "commit" in source else {}), **source}
    settings = task.model_dump(exclude={"path", "revision", "train", "validation", *SCORING})
    return {"task": settings, "splits": exact}


def check_splits(task: Benchmark, cache: Cache) -> None:
    """Raises DataError for a local file that is in two splits, or of which another split has a copy, and for splits
    of the hub that have common rows.
    """
    local = {place.key: files.find(place.key, place.value) for place in places(task).values() if place.is_file}
    files.digests_of_splits(local, cache.file_digest)
    hub.check_splits({place.key: place.value for place in places(task).values() if not place.is_file})


def is_local(task: Benchmark) -> bool:
    """Whether all examples lie in local files, so that no network is needed."""
    return all(place.is_file for place in places(task).values())


def read_rows(task: Benchmark, split: str, cache: Cache) -> Iterator[tuple[str, Row]]:
    """Each row of a split in its order, after its name for messages. Raises DataError for missing columns."""
    source = places(task)[split]
    where = ""
    for where, row in islice(_rows(task, source, task.columns, cache), source.limit):
        yield f"{source.key}={where}", row
    if not where:
        raise DataError(f"{source.key}={source.value} has no rows")


def _rows(task: Benchmark, place: Place, columns: dict[str, str], cache: Cache) -> Iterator[tuple[str, Row]]:
    """Each row after its place: the file and the line, or the file or the split and the row, counted from 0."""
    if not place.is_file:
        of_hub = _hub(task)
        rows = hub.rows(of_hub, place.value, hub.source(of_hub, cache), cache, _checked(columns))
        yield from ((f"{place.value}, row {number}", row) for number, row in enumerate(rows))
        return
    for path in files.find(place.key, place.value):
        if path.suffix == ".parquet":
            yield from _parquet(path, columns)
        elif path.suffix in delimited.FORMS:
            yield from delimited.rows(path, _checked(columns))
        else:
            yield from _json(path, columns)


def _hub(task: Benchmark) -> hub.HubPlace:
    keys = hub.HubKeys("task.path", "task.subset", "task.revision")
    return hub.HubPlace(task.path, task.subset, task.revision, instead=OTHER_EXAMPLES, keys=keys)


def _checked(columns: dict[str, str]) -> Callable[[str, list[str]], list[str]]:
    """`check(where, names)`: the columns, if all are among the names. Raises DataError."""

    def check(where: str, names: list[str]) -> list[str]:
        for column, key in columns.items():
            files.check_column(where, column, names, key)
        return list(columns)

    return check


def _parquet(path: Path, columns: dict[str, str]) -> Iterator[tuple[str, Row]]:
    with files.parquet_file(path) as file:
        names = _checked(columns)(str(path), file.schema_arrow.names)
        batches = file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names)
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows))


def _json(path: Path, columns: dict[str, str]) -> Iterator[tuple[str, Row]]:
    """A list of objects, or the objects of a file with one on each line."""
    check = _checked(columns)
    for where, row in _json_values(path):
        if not isinstance(row, dict):
            raise DataError(f"{where}: an object with the columns {', '.join(columns)} is needed")
        check(where, list(row))
        yield where, row


def _json_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Each value of a list, or that of each line, after its place. Raises DataError for what is not JSON."""
    text = files.whole_text(path)
    if text.lstrip().startswith("["):
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(_parsed(text, str(path))))
        return
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if line.strip():
            yield (where := f"{path}, line {number}"), _parsed(line.rstrip(), where)


def _parsed(text: str, where: str) -> Any:
    """The value that a text is in JSON. Raises DataError."""
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            where += f", line {error.lineno}" if "\n" in text else ""
            reason = f"{error.msg} (character {error.colno})"
        raise DataError(
            f"{where}: {reason}; the file must be a JSON list of objects, or have an object in each line"
        ) from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> Row:
    """The object of these keys and values. Raises ValueError for a key that stands twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has {next(name for name in row if names.count(name) > 1)!r} twice")
    return row


def text_of(row: Row, column: str, where: str, *, empty: bool = False) -> str:
    """The text in a column, which may consist of white space only if it may be `empty`. Raises DataError."""
    value = row[column]
    if not isinstance(value, str) or not (empty or value.strip()):
        raise DataError(f"{where}: column {column} is {value!r}, not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # JSON can write one half of a character
        half = f"{value[error.start : error.end]!r} at character {error.start}"
        raise DataError(f"{where}: column {column} has {half}, which is no text") from error
    return value
