"""Sentence pairs: a text is `source TAB target`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.data import files
from experiments.data.errors import DataError, suggestion
from experiments.settings.data import HubPairs, PairFiles

TAB = "\t"


def is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def rows(path: Path, data: PairFiles) -> Iterator[str]:
    """The pairs of a file, those with an empty side left out. Raises DataError."""
    if is_parquet(path):
        columns = {"data.source": data.source, "data.target": data.target}
        yield from (text for pair in files.parquet_texts(path, columns) if (text := joined(*pair)))
        return
    for number, line in enumerate(files.text_rows(path), 1):
        if line.strip() and TAB not in line:
            raise DataError(f"{path}, line {number} has no tab: a line is a source, a tab, and a target")
        if line.strip():
            # what follows a second tab is a remark
            source, target = line.split(TAB)[:2]
            if text := joined(source, target):
                yield text


def of_languages(value: Any, data: HubPairs) -> str | None:
    """The pair of a value with a text for each language; None where a side is empty. Raises DataError."""
    languages = list(value) if isinstance(value, dict) else []
    for key, language in (("source", data.source), ("target", data.target)):
        if language not in languages:
            there = suggestion(language, languages) or f": {type(value).__name__}, not a text for each language"
            raise DataError(f"data.{key}={language}: data.column={data.column} of {data.path} has no such{there}")
    source, target = value[data.source], value[data.target]
    for key, text in (("source", source), ("target", target)):
        if text is not None and not isinstance(text, str):
            raise DataError(f"data.{key}: data set {data.path} has {type(text).__name__} there, not text")
    return joined(source, target) if source and target else None


def joined(source: str, target: str) -> str | None:
    """The two as one text, white space inside them as single blanks; None where a side is empty."""
    source, target = (" ".join(side.split()) for side in (source, target))
    return f"{source}{TAB}{target}" if source and target else None
