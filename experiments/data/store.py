"""The cache folder: what is there was made once, by one process at a time, and is whole."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.data.errors import DataError
from experiments.settings.digest import blocks, bytes_digest, digest
from experiments.settings.mistake import first_line

MANIFEST = "manifest.json"
REMEMBERED = 1 << 26  # bytes of a file from which on its digest is remembered rather than made again


class MissingError(LookupError):
    """It would have to be made."""


class Cache:
    """Folders `root/kind/key`, each with a manifest of its files' sizes and SHA-256 digests.

    A folder is made under another name, under a lock that the system releases when its process dies, and renamed when
    it is on the disk: a kill at any instant leaves no folder or a whole one. `say` hears of waits for other processes;
    without it nothing is made.
    """

    def __init__(self, root: Path, say: Callable[[str], None] | None) -> None:
        self.root = root
        self.say = say

    def obtain(self, kind: str, key: str, make: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
        """The folder and its facts: what `make(folder)`, which fills an empty folder, returned when it was made.

        Raises MissingError where there is none and nothing is to be made.
        """
        folder = self.root / kind / key[:32]
        if (facts := self._facts(folder)) is None:
            if self.say is None:
                raise MissingError(folder)
            with self._unwritable(), self._lock(folder, self.say):
                if (facts := self._facts(folder)) is None:
                    facts = self._make(folder, make)
        return folder, facts

    def remember(self, key: object, value: str) -> str:
        """Note a short value for later processes, if the folder lets us; returns it."""
        note = self._note(key)
        with contextlib.suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            partial = note.with_suffix(f".{os.getpid()}")
            partial.write_text(value, encoding="utf-8")
            partial.replace(note)
        return value

    def recall(self, key: object) -> str | None:
        """The value that was noted under a key; None without one."""
        try:
            return self._note(key).read_text(encoding="utf-8") or None
        except (OSError, UnicodeDecodeError):
            return None

    def file_digest(self, path: Path, contents: Callable[[Path], Iterable[bytes]] = blocks) -> str:
        """Hex SHA-256 of a file; of a big one it is remembered while size, times and inode stay as they are."""
        status = path.stat()
        key = ["file", str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        if status.st_size < REMEMBERED:
            return bytes_digest(contents(path))
        return self.recall(key) or self.remember(key, bytes_digest(contents(path)))

    def _note(self, key: object) -> Path:
        return self.root / "notes" / digest(key)[:32]

    def _facts(self, folder: Path) -> dict[str, Any] | None:
        """What the manifest says, if every file is as it says; None where there is nothing whole."""
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            for name, (size, sha256) in manifest["files"].items():
                if (folder / name).stat().st_size != size or self.file_digest(folder / name) != sha256:
                    return None
            return dict(manifest["facts"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _make(self, folder: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        self._sweep(folder.parent)
        partial = folder.with_suffix(".partial")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            facts = make(partial)
            files = {path.name: (path.stat().st_size, self.file_digest(path)) for path in sorted(partial.iterdir())}
            (partial / MANIFEST).write_text(json.dumps({"files": files, "facts": facts}, indent=1), encoding="utf-8")
            for path in (*partial.iterdir(), partial):
                _to_disk(path)
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _to_disk(folder.parent)
        return facts

    @contextlib.contextmanager
    def _lock(self, folder: Path, say: Callable[[str], None]) -> Iterator[None]:
        from filelock import FileLock, Timeout

        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_suffix(".lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            say(f"waiting for another process that makes {folder}")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _sweep(self, parent: Path) -> None:
        """Remove what processes that were killed have left; what a living one is making is locked."""
        from filelock import FileLock, Timeout

        for partial in parent.glob("*.partial"):
            with contextlib.suppress(Timeout), FileLock(partial.with_suffix(".lock"), blocking=False):
                shutil.rmtree(partial, ignore_errors=True)

    @contextlib.contextmanager
    def _unwritable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or first_line(error)
            raise DataError(f"cache={self.root} cannot be written: {reason}; choose another, cache=FOLDER") from error


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
