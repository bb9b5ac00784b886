"""The contents of the files of many runs, kept in one SQLite file beside the runs. A file is read again only if it has
changed.

An entry of the index has the path of a file from the folder of the runs, the time, size and inode number of the files
that were read, their content, and its own digest.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic_core import from_json, to_json

from experiments.files.digest import text_digest
from experiments.files.disk import read_bytes
from experiments.record.result import Result
from experiments.results.find import folders_in

INDEX_FILE = ".index.sqlite"
MEMORY = ":memory:"  # SQLite's name for a database without a file
FORM = 6  # raised whenever derived data other than the fields of results changes
WAIT_SECONDS = 5.0
ABSENT = "-"
Entry = Sequence[str]  # stamp, content, digest


class Index:
    """The index of a folder of runs. It contains only derived data, so it may be removed at any time.

    The index of a folder that cannot be written is kept in memory. So is one whose file is not an SQLite file or stays
    locked. A folder without runs gets no file.
    """

    def __init__(self, runs: Path) -> None:
        self._runs, self._file = runs, runs / INDEX_FILE
        self._loaded: dict[str, Entry] | None = None
        self._new: dict[str, Entry] = {}
        self._gone: list[str] = []  # paths of files that were removed
        try:
            self._database = _open(str(self._file) if self._file.exists() else MEMORY)
        except (sqlite3.Error, OSError):
            self._database = _open(MEMORY)

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a full disk loses only updates of the index
        with suppress(sqlite3.Error, OSError):
            if self._new and not self._file.exists():
                self._database.close()
                self._database = _open(str(self._file))
            self._database.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in self._gone))
            entries = ((path, *entry) for path, entry in self._new.items())
            self._database.executemany("REPLACE INTO files VALUES (?, ?, ?, ?)", entries)
            self._database.commit()
        self._database.close()

    def folders(self) -> list[Path]:
        """All folders of the runs, by name; their entries are loaded at once, in half the time if most are needed.

        Not everything in the list must be a run. The entries of runs that were removed are forgotten.
        """
        folders = folders_in(self._runs)
        with suppress(sqlite3.Error):
            entries = self._database.execute("SELECT path, stamp, content, digest FROM files")
            self._loaded = {path: entry for path, *entry in entries}
            names = {folder.name for folder in folders}
            elsewhere = (path for path in self._loaded if path.partition("/")[0] not in names)
            # a path outside of the folder of the runs begins with /
            self._gone = [path for path in elsewhere if _stamp(str(self._runs / path)) == ABSENT]
        return folders

    def read(self, path: Path, parse: Callable[[bytes], Any], beside: Sequence[str] = ()) -> Any:
        """`parse(content)` of the file, as JSON can hold it, taken from the index while the file is unchanged.

        None if there is no such file.

        beside: the names of files in its folder that `parse` also reads. Raises whatever `parse` raises, and OSError.
        """
        file = self._absolute(path)
        if (stamp := _stamp(file)) == ABSENT:
            return None
        # so that a folder of runs may be moved, or has two names
        key, folder = file.removeprefix(self._root), file.rpartition("/")[0]
        stamp = " ".join([stamp, *(_stamp(f"{folder}/{name}") for name in beside)])
        known = self._new.get(key) or (self._entry(key) if self._loaded is None else self._loaded.get(key))
        if known and known[0] == stamp and known[2] == _digest(key, stamp, known[1]):
            return from_json(known[1])  # in half the time of the standard library
        content = parse(read_bytes(path))
        text = to_json(content, inf_nan_mode="constants").decode()
        self._new[key] = stamp, text, _digest(key, stamp, text)
        return content

    def _entry(self, key: str) -> Entry | None:
        try:
            entry: Entry | None = self._database.execute(
                "SELECT stamp, content, digest FROM files WHERE path = ?", (key,)
            ).fetchone()
        except sqlite3.Error:
            # if another process writes a lot, do without the index rather than wait for every file
            self._database.close()
            self._database, entry = _open(MEMORY), None
        return entry

    def _absolute(self, path: Path) -> str:
        return str(path) if path.is_absolute() else f"{self._current_folder}/{path}"

    @cached_property
    def _root(self) -> str:
        return f"{self._absolute(self._runs)}/"

    @cached_property
    def _current_folder(self) -> str:
        return str(Path.cwd())


def _stamp(path: str) -> str:
    """The facts that differ between two states of a file, as far as they are known without reading it."""
    try:
        status = os.stat(path)  # noqa: PTH116 - half the time of a Path, of ten thousand runs
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    return f"{status.st_mtime_ns},{status.st_ctime_ns},{status.st_size},{status.st_ino}"


def _digest(path: str, stamp: str, content: object) -> str:
    return text_digest(f"{path}\n{stamp}\n{content}")


def version_of(result: type) -> int:
    """The version, of 31 bits, of an index of such results. An index of another version is rebuilt."""
    names = [field.name for field in dataclasses.fields(result)]
    return zlib.crc32(repr((FORM, names)).encode()) >> 1


def _open(name: str) -> sqlite3.Connection:
    database, version = sqlite3.connect(name, timeout=WAIT_SECONDS), version_of(Result)
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != version:
            database.execute("DROP TABLE IF EXISTS files")
            database.execute(f"PRAGMA user_version = {version}")
        columns = "path TEXT PRIMARY KEY, stamp TEXT, content TEXT, digest TEXT"
        database.execute(f"CREATE TABLE IF NOT EXISTS files ({columns})")
        # makes a read-only file fail here rather than later
        database.execute("DELETE FROM files WHERE path = ''")
        database.commit()
    except sqlite3.Error:
        database.close()
        raise
    return database
