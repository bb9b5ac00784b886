"""What the files of many runs say, each read again only when it has changed: one SQLite file beside the runs."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

INDEX_FILE = ".index.sqlite"
# counted up whenever what is derived from a file changes: an index of another version is made anew
VERSION = 1
WAIT_SECONDS = 5.0


class Index:
    """The index of a folder of runs; it holds only what can be derived again, and may be removed at any time.

    A folder that can't be written is indexed in memory, and so is one whose index is no SQLite file or stays locked.
    """

    def __init__(self, runs: Path) -> None:
        try:
            self._database = _open(str(runs / INDEX_FILE))
        except sqlite3.Error:
            self._database = _open(":memory:")

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a disk that is full by now loses the index's news, nothing else
        with suppress(sqlite3.Error):
            self._database.commit()
        self._database.close()

    def read(self, path: Path, parse: Callable[[bytes], Any]) -> Any:
        """`parse(content)` of the file, which JSON can hold, from the index while time and size of the file are the
        same; None where there is no such file. Raises whatever `parse` does, and OSError."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        key = os.path.abspath(path)  # noqa: PTH100 - a hundred times as fast as resolve()
        stamp = f"{status.st_mtime_ns} {status.st_size}"
        try:
            known = self._database.execute("SELECT stamp, content FROM files WHERE path = ?", (key,)).fetchone()
        except sqlite3.Error:
            # another process writes a lot: without the index rather than to wait again for every file
            self._database.close()
            self._database, known = _open(":memory:"), None
        if known and known[0] == stamp:
            return json.loads(known[1])
        content = parse(path.read_bytes())
        with suppress(sqlite3.Error):
            self._database.execute("REPLACE INTO files VALUES (?, ?, ?)", (key, stamp, json.dumps(content)))
        return content


def _open(name: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, timeout=WAIT_SECONDS)
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            database.execute("DROP TABLE IF EXISTS files")
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, stamp TEXT, content TEXT)")
        # fails here rather than in the middle where the file may only be read
        database.execute("DELETE FROM files WHERE path = ''")
        database.commit()
    except sqlite3.Error:
        database.close()
        raise
    return database
