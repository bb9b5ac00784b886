"""Sentence pairs: a text is `source TAB target`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.data.errors import DataError
from experiments.data.readers import files

TAB = "\t"


def is_parquet(path: Path) -> bool:
    """Whether a file is read as Parquet: its name or its first bytes say so."""
    return path.suffix == ".parquet" or files.begin(path).startswith(files.PARQUET)


def rows(path: Path, source_column: str, target_column: str) -> Iterator[str]:
    """The pairs of a file, those with an empty side left out; the columns are of Parquet. Raises DataError."""
    if is_parquet(path):
        columns = {"data.source": source_column, "data.target": target_column}
        yield from (text for pair in files.parquet_texts(path, columns) if (text := joined(*pair)))
        return
    for number, line in enumerate(files.text_rows(path), 1):
        if line.strip() and TAB not in line:
            raise DataError(f"{path}, line {number} has no tab; a line must be a source, a tab, and a target")
        if line.strip():
            # what follows a second tab is a remark
            source, target = line.split(TAB)[:2]
            if text := joined(source, target):
                yield text


def joined(source: str, target: str) -> str | None:
    """The two as one text, white space inside them as single blanks; None where a side is empty."""
    source, target = (" ".join(side.split()) for side in (source, target))
    return f"{source}{TAB}{target}" if source and target else None
