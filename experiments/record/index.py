"""What the files of many runs say, each read again only when it has changed: one SQLite file beside the runs.

A line of it holds the time, size and number of the files that were read, what was found in them, and its own digest.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.settings.digest import text_digest
from experiments.settings.disk import read_bytes

INDEX_FILE = ".index.sqlite"
# counted up whenever what is derived from a file changes: an index of another version is made anew
VERSION = 3
WAIT_SECONDS = 5.0
ABSENT = "-"


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

    def read(self, path: Path, parse: Callable[[bytes], Any], beside: Sequence[str] = ()) -> Any:
        """`parse(content)` of the file, which JSON can hold, from the index while the file is the same.

        None where there is no such file.

        beside: names of files in its folder that `parse` reads too. Raises whatever `parse` does, and OSError.
        """
        key = os.path.abspath(path)  # noqa: PTH100 - a hundred times as fast as resolve()
        if (stamp := _stamp(key)) == ABSENT:
            return None
        stamp = " ".join([stamp, *(_stamp(f"{key.rpartition('/')[0]}/{name}") for name in beside)])
        try:
            line = "SELECT stamp, content, digest FROM files WHERE path = ?"
            known = self._database.execute(line, (key,)).fetchone()
        except sqlite3.Error:
            # another process writes a lot: without the index rather than to wait again for every file
            self._database.close()
            self._database, known = _open(":memory:"), None
        if known and known[0] == stamp and known[2] == _digest(key, stamp, known[1]):
            return json.loads(known[1])
        content = parse(read_bytes(path))
        text = json.dumps(content)
        with suppress(sqlite3.Error):
            values = (key, stamp, text, _digest(key, stamp, text))
            self._database.execute("REPLACE INTO files VALUES (?, ?, ?, ?)", values)
        return content


def _stamp(path: str) -> str:
    """What differs between two states of a file, as far as it is known without reading it."""
    try:
        status = os.stat(path)  # noqa: PTH116 - half the time of a Path, of ten thousand runs
    except FileNotFoundError:
        return ABSENT
    return f"{status.st_mtime_ns},{status.st_ctime_ns},{status.st_size},{status.st_ino}"


def _digest(path: str, stamp: str, content: object) -> str:
    return text_digest(f"{path}\n{stamp}\n{content}")


def _open(name: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, timeout=WAIT_SECONDS)
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            database.execute("DROP TABLE IF EXISTS files")
            database.execute(f"PRAGMA user_version = {VERSION}")
        columns = "path TEXT PRIMARY KEY, stamp TEXT, content TEXT, digest TEXT"
        database.execute(f"CREATE TABLE IF NOT EXISTS files ({columns})")
        # fails here rather than in the middle where the file may only be read
        database.execute("DELETE FROM files WHERE path = ''")
        database.commit()
    except sqlite3.Error:
        database.close()
        raise
    return database
