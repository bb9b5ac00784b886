"""The examples of a task, from the hub or from local files, each checked: a mistake in the data is named at its row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from experiments.data import files, hub
from experiments.data.errors import DataError, suggestion
from experiments.data.store import Cache
from experiments.settings.finetuning import Benchmark, Classification, Regression, Span
from experiments.settings.mistake import first_line

Row = dict[str, Any]
FILES = (".parquet", ".json", ".jsonl")
SCORING = {"n_best", "max_answer", "window_score", "metrics"}  # settings that change no window
ROWS_AT_ONCE = 1024  # rows of a Parquet file in memory at once


class Question(NamedTuple):
    """An example of a task of spans."""

    id: str
    question: str
    context: str
    answers: list[str]
    start: int  # character of the context where the first answer begins


class LabelledExample(NamedTuple):
    """An example of a task with a label, its number, or with a number."""

    texts: list[str]
    label: float


class Place(NamedTuple):
    """Where the examples of one split are."""

    key: str  # the setting that says so
    value: str  # of it
    limit: int | None

    @property
    def is_file(self) -> bool:
        """Whether the value names a file; else it is a split of the hub."""
        return self.value.endswith(FILES)


def places(task: Benchmark) -> dict[str, Place]:
    """`train`, and the validation splits as `validation` or `validation.NAME`."""
    splits = {"train": Place("task.train", task.train, task.train_examples)}
    for name, value in task.held_out.items():
        split = f"validation.{name}" if name else "validation"
        splits[split] = Place(f"task.{split}", value, task.validation_examples)
    return splits


def identity(task: Benchmark, cache: Cache) -> dict[str, Any]:
    """What the examples are, wherever they lie; changes when they do. Raises DataError for a file that isn't there."""
    of_hub = _hub(task)
    exact: dict[str, Any] = {}
    for split, place in places(task).items():
        if place.is_file:
            exact[split] = {"sha256": [cache.file_digest(path) for path in files.find(place.key, place.value)]}
        else:
            exact[split] = {"split": place.value, "path": task.path, **hub.source(of_hub, cache)}
    settings = task.model_dump(exclude={"path", "revision", "train", "validation", *SCORING})
    return {"task": settings, "splits": exact}


def is_local(task: Benchmark) -> bool:
    """Whether all examples lie in local files, so that no network is needed."""
    return all(place.is_file for place in places(task).values())


def read(task: Benchmark, split: str, cache: Cache) -> Iterator[Question | LabelledExample]:
    """The examples of a split, in their order. Raises DataError at the first that can't be used."""
    place = places(task)[split]
    columns = task.columns
    number, rows_by_id = -1, dict[str, int]()
    for number, row in enumerate(islice(_rows(task, place, columns, cache), place.limit)):
        where = f"{place.key}={place.value}, row {number}"
        if not isinstance(task, Span):
            yield _labelled(task, row, where)
            continue
        question = _question(task, row, where)
        # a predicted answer is filed under its question's id
        if split != "train" and (other := rows_by_id.setdefault(question.id, number)) != number:
            raise DataError(f"{where}: row {other} has the {task.id} {question.id!r} too")
        yield question
    if number < 0:
        raise DataError(f"{place.key}={place.value} has no rows")


def _rows(task: Benchmark, place: Place, columns: dict[str, str], cache: Cache) -> Iterator[Row]:
    if not place.is_file:
        of_hub = _hub(task)
        yield from hub.rows(of_hub, place.value, hub.source(of_hub, cache), cache, _checked(columns))
        return
    for path in files.find(place.key, place.value):
        yield from _parquet(path, columns) if path.suffix == ".parquet" else _json(path, columns)


def _hub(task: Benchmark) -> hub.HubPlace:
    return hub.HubPlace(task.path, task.subset, task.revision)


def _checked(columns: dict[str, str]) -> Callable[[str, list[str]], list[str]]:
    """`check(place, names)`: the columns, if all are among the names. Raises DataError."""

    def check(place: str, names: list[str]) -> list[str]:
        for column, key in columns.items():
            if column not in names:
                raise DataError(f"{key}={column}: {place} has no such column{suggestion(column, names)}")
        return list(columns)

    return check


def _parquet(path: Path, columns: dict[str, str]) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = _checked(columns)(str(path), file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file, or a damaged one: {first_line(error)}") from error


def _json(path: Path, columns: dict[str, str]) -> Iterator[Row]:
    """A list of objects, or an object a line."""
    check = _checked(columns)
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = (
            json.loads(text) if text.lstrip().startswith("[") else map(json.loads, filter(str.strip, text.split("\n")))
        )
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise DataError(f"{path}, row {number}: an object with the columns {', '.join(columns)} is needed")
            check(f"{path}, row {number}", list(row))
            yield row
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is neither a JSON list of objects nor an object a line: {error}") from error


def _question(task: Span, row: Row, where: str) -> Question:
    name = _text(row, task.id, where)
    question, context = _text(row, task.question, where), _text(row, task.context, where)
    answers = row[task.answers]
    if not isinstance(answers, dict) or not {"text", "answer_start"} <= answers.keys():
        raise DataError(f"{where}: column {task.answers} must hold {{text: [...], answer_start: [...]}}")
    texts, starts = answers["text"], answers["answer_start"]
    if not _is_answers(texts, starts):
        raise DataError(f"{where} ({name}): a question needs at least one answer, each a text with its answer_start")
    start = starts[0]
    if context[start : start + len(texts[0])] != texts[0]:
        hint = f"it stands at {at}" if (at := context.find(texts[0])) >= 0 else "it is nowhere in the context"
        raise DataError(f"{where} ({name}): the answer {texts[0]!r} is not at answer_start={start}; {hint}")
    return Question(name, question, context, texts, start)


def _is_answers(texts: Any, starts: Any) -> bool:
    if not isinstance(texts, list) or not isinstance(starts, list) or not 0 < len(texts) == len(starts):
        return False
    written = all(isinstance(text, str) and text.strip() for text in texts)
    return written and all(type(start) is int and start >= 0 for start in starts)


def _labelled(task: Classification | Regression, row: Row, where: str) -> LabelledExample:
    # some of the published sentences are empty
    texts = [_text(row, column, where, empty=True) for column in task.texts]
    value = row[task.label]
    if isinstance(task, Regression):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{where}: column {task.label} is {value!r}, not a number")
        return LabelledExample(texts, float(value))
    if isinstance(value, str) and value in task.labels:
        return LabelledExample(texts, task.labels.index(value))
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(task.labels):
        return LabelledExample(texts, value)
    known = ", ".join(f"{number} {label}" for number, label in enumerate(task.labels))
    hint = " (a split whose labels are hidden?)" if value == -1 else ""
    raise DataError(f"{where}: unknown label {value!r} in column {task.label}; there are: {known}{hint}")


def _text(row: Row, column: str, where: str, *, empty: bool = False) -> str:
    value = row[column]
    if not isinstance(value, str) or not (empty or value.strip()):
        raise DataError(f"{where}: column {column} is {value!r}, not a text")
    return value
