"""The text of a run: which documents there are, in which split, and what exactly they are."""

from __future__ import annotations

import functools
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.data import documents, files, pairs
from experiments.data.errors import DataError
from experiments.data.store import Cache, digest
from experiments.settings.data import Data, HubSet, PairFiles, ParquetFiles, PythonDocs, TextFiles

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Corpus:
    identity: dict[str, Any]  # JSON-able; changes when the text does
    documents: Callable[[], Iterator[tuple[str, str]]]  # (split, document), in one pass; raises DataError
    size: Callable[[], int | None]  # about how many bytes of text there are, if known: for progress


def open_corpus(data: Data, cache: Cache) -> Corpus:
    """Find the text, and say what it is without reading it where that is known. Raises DataError, within seconds."""
    if isinstance(data, PythonDocs):
        return _python_docs(data, cache)
    if isinstance(data, HubSet):
        return _hub(data, cache)
    return _files(data, cache)


def _python_docs(data: PythonDocs, cache: Cache) -> Corpus:
    """Its digest is noted in the cache under all that it is made from: a second start need not make the text again."""
    from experiments.data import python_docs

    if data.python != platform.python_version():
        raise DataError(
            f"data.python={data.python}: this interpreter is {platform.python_version()}, whose documentation is "
            f"another text; use Python {data.python}, or leave data.python as it is"
        )
    library = Path(sysconfig.get_path("stdlib"))
    maker = cache.file_digest(Path(python_docs.__file__))
    key = ["python_docs", sys.version, str(library), library.stat().st_mtime_ns, maker]
    held_out = {"validation": 2, "test": 1}

    @functools.cache
    def texts() -> list[str]:
        made = list(python_docs.documents())
        if not made:
            raise DataError("data=python_docs: this Python has no sources with English; use data=text data.train=FILE")
        return made

    sha256 = cache.recall(key) or cache.remember(key, digest(texts()))

    def read() -> Iterator[tuple[str, str]]:
        if (now := digest(texts())) != sha256:
            cache.remember(key, now)
            raise DataError("the documentation of this Python has changed since it was last read; run it again")
        return ((documents.split_of(text, held_out), text) for text in texts())

    identity = {"kind": data.kind, "python": data.python, "sha256": sha256, "held_out": held_out}
    return Corpus(identity, read, lambda: sum(len(text.encode()) for text in texts()))


def _files(data: TextFiles | ParquetFiles | PairFiles, cache: Cache) -> Corpus:
    found = {split: files.find(f"data.{split}", pattern) for split, pattern in _asked(data).items()}
    _disjoint(found)

    def rows(path: Path) -> Iterator[str]:
        if isinstance(data, PairFiles):
            return pairs.rows(path, data)
        return files.parquet_rows(path, data.column) if isinstance(data, ParquetFiles) else files.text_rows(path)

    def columns(path: Path) -> list[str]:
        """Of a Parquet file, those that are read; of a text none."""
        if isinstance(data, PairFiles):
            return [data.source, data.target] if pairs.is_parquet(path) else []
        return [data.column] if isinstance(data, ParquetFiles) else []

    def texts(split: str) -> Iterator[str]:
        kind = "row" if isinstance(data, PairFiles) else data.documents
        return (text for path in found[split] for text in documents.group(rows(path), kind))

    def size() -> int | None:
        paths = [path for split in found.values() for path in split]
        of_columns = (sum(files.parquet_size(path, column) for column in columns(path)) for path in paths)
        return sum(of_columns) + sum(path.stat().st_size for path in paths if not columns(path))

    def sha256(path: Path) -> str:
        return cache.file_digest(path, files.blocks if columns(path) else files.text_bytes)

    identity = {
        **data.model_dump(exclude=set(SPLITS)),
        "sha256": {split: [sha256(path) for path in paths] for split, paths in found.items()},
        "held_out": _held_out(data),
    }
    return Corpus(identity, lambda: _assigned(found, texts, _held_out(data)), size)


def _hub(data: HubSet, cache: Cache) -> Corpus:
    from experiments.data import hub

    exact = hub.source(data, cache)
    asked = _asked(data)

    def texts(split: str) -> Iterator[str]:
        return hub.documents(data, split, asked[split], exact, cache)

    where = {"path": data.path} if "commit" in exact else {}
    identity = {
        **data.model_dump(exclude={"path", "revision", "streaming", *SPLITS}),
        **where,
        **exact,
        "splits": asked,
        "held_out": _held_out(data),
    }
    return Corpus(identity, lambda: _assigned(asked, texts, _held_out(data)), lambda: None)


def _asked(data: HubSet | TextFiles | ParquetFiles | PairFiles) -> dict[str, str]:
    asked = {"train": data.train, "validation": data.validation, "test": data.test}
    return {split: place for split, place in asked.items() if place is not None}


def _held_out(data: HubSet | TextFiles | ParquetFiles | PairFiles) -> dict[str, int]:
    """How many 20ths of the training text go to which other split: none where validation is given."""
    if data.validation is not None:
        return {}
    return {"validation": 1} if data.test is not None else {"validation": 1, "test": 1}


def _assigned(
    splits: dict[str, Any], texts: Callable[[str], Iterator[str]], held_out: dict[str, int]
) -> Iterator[tuple[str, str]]:
    for split in splits:
        for text in texts(split):
            yield (documents.split_of(text, held_out) if split == "train" else split), text


def _disjoint(found: dict[str, list[Path]]) -> None:
    owner: dict[Path, str] = {}
    for split, paths in found.items():
        for path in paths:
            if (other := owner.setdefault(path.resolve(), split)) != split:
                raise DataError(f"data.{other} and data.{split} both have {path}: text to measure on is not trained on")
