"""The cache folder: its entries are made once, by one process at a time, and are complete."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.data.errors import DataError
from experiments.failures.wording import first_line
from experiments.files.digest import blocks, bytes_digest, digest, sealed, unsealed
from experiments.files.disk import lock_file, make_folder, open_regular, read_bytes, take_lock
from experiments.files.durable import DiskError, disk_errors, new_folder, or_elsewhere, remove_abandoned, write
from experiments.files.plain import from_json

MANIFEST = "manifest.json"
REMEMBERED = 1 << 26  # bytes of a file from which on its digest is remembered rather than made again


ANOTHER_CACHE = "choose another cache: cache=FOLDER, or ATTN_CACHE in the environment"


class MissingError(LookupError):
    """The entry does not exist, and may not be made here."""


class _UnusableError(Exception):
    """The folder is missing or damaged."""

    def __init__(self, damage: str = "") -> None:
        self.damage = damage


class Cache:
    """Folders `root/kind/key`, each with a manifest: facts, sizes and SHA-256 digests of the files, and its own digest.

    One process at a time makes a folder, under a lock that the system releases when the process dies. A kill at any
    instant leaves no folder or a whole one. `say` hears of waits for other processes; without it nothing is made.
    """

    def __init__(self, root: Path, say: Callable[[str], None] | None) -> None:
        self.root = root
        self.say = say

    def obtain(self, kind: str, key: str, make: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
        """The folder and its facts, which `make(folder)` returned when it filled the empty folder.

        Raises MissingError if there is none and nothing may be made.
        """
        folder = self.root / kind / key[:32]
        try:
            return folder, self._facts(folder)
        except _UnusableError:
            if self.say is None:
                raise MissingError(folder) from None
        with or_elsewhere(ANOTHER_CACHE, DataError), disk_errors(folder), self._lock(folder, self.say):
            try:
                return folder, self._facts(folder)
            except _UnusableError as error:
                if error.damage:
                    self.say(f"{folder}: damaged ({error.damage}); made again")
            return folder, self._make(folder, make)

    def contents(self, name: str) -> dict[str, str]:
        """{name: digest of the files' names, sizes and digests} of a folder `kind/key`; empty without one.

        Two makers, such as two versions of a library, may fill a folder of the same key differently. Only the manifest
        is read.
        """
        try:
            manifest = unsealed(from_json(read_bytes(self.root / name / MANIFEST)))
        except (OSError, ValueError):
            return {}
        return {name: digest(manifest["files"])}

    def remember(self, key: object, value: str) -> str:
        """Note a short value for later processes, if the folder can be written; returns it."""
        note = self._note(key)
        with contextlib.suppress(OSError, DiskError):
            make_folder(note.parent)
            write(note, json.dumps(sealed({"of": digest(key), "value": value})))
        return value

    def recall(self, key: object) -> str | None:
        """The value that was noted under a key; None without one, or if it has changed."""
        try:
            note = unsealed(from_json(read_bytes(self._note(key))))
        except (OSError, ValueError):
            return None
        value = note.get("value")
        return value if isinstance(value, str) and note.get("of") == digest(key) else None

    def file_digest(self, path: Path, contents: Callable[[Path], Iterable[bytes]] = blocks) -> str:
        """Hex SHA-256 of a file. That of a large file is remembered while size, times and inode stay the same."""
        status = path.stat()
        key = ["file", str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        if status.st_size < REMEMBERED:
            return bytes_digest(contents(path))
        return self.recall(key) or self.remember(key, bytes_digest(contents(path)))

    def _note(self, key: object) -> Path:
        return self.root / "notes" / digest(key)[:32]

    def _facts(self, folder: Path) -> dict[str, Any]:
        """The facts of the manifest. Raises _UnusableError unless it and every file are as they were written."""
        with self._unreadable():
            if not folder.exists():
                raise _UnusableError
        try:
            with self._unreadable():
                manifest = unsealed(from_json(read_bytes(folder / MANIFEST)))
        except (OSError, ValueError) as error:
            raise _UnusableError(f"{MANIFEST}: {first_line(error)}") from error
        if manifest["of"] != folder_name(folder):
            raise _UnusableError(f"{MANIFEST}: it is of {manifest['of']}")
        for name, (size, sha256) in manifest["files"].items():
            try:
                # opened even if its digest is remembered
                with self._unreadable(), open_regular(folder / name) as file:
                    same = os.fstat(file.fileno()).st_size == size and self.file_digest(folder / name) == sha256
            except OSError as error:
                raise _UnusableError(f"{name}: {error.strerror}") from error
            if not same:
                raise _UnusableError(f"{name}: its digest differs")
        facts: dict[str, Any] = manifest["facts"]
        return facts

    def _make(self, folder: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        self.sweep()
        # a damaged one stays where it can't be made again
        with new_folder(folder, replace=True) as partial:
            with self._errors_of_what_is_read():
                facts = make(partial)
            files = {path.name: (path.stat().st_size, self.file_digest(path)) for path in sorted(partial.iterdir())}
            manifest = sealed({"of": folder_name(folder), "files": files, "facts": facts})
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        return facts

    @contextlib.contextmanager
    def _errors_of_what_is_read(self) -> Iterator[None]:
        """A block that reads files of the user's; their errors name them, and no other cache as the remedy."""
        try:
            yield
        except OSError as error:
            if not error.filename or Path(error.filename).resolve().is_relative_to(self.root.resolve()):
                raise
            with or_elsewhere("", DataError), disk_errors(Path(error.filename)):
                raise

    @contextlib.contextmanager
    def _lock(self, folder: Path, say: Callable[[str], None]) -> Iterator[None]:
        make_folder(folder.parent)
        with lock_file(folder.with_suffix(".lock")) as lock:
            if not take_lock(lock):
                say(f"waiting for another process that makes {folder}")
                take_lock(lock, wait=True)
            yield

    def sweep(self) -> None:
        """Remove the unfinished folders of killed processes. Those of living ones stay."""
        for kind in self.root.glob("*"):
            remove_abandoned(kind)

    @contextlib.contextmanager
    def _unreadable(self) -> Iterator[None]:
        """A block that reads. A folder without the right to read it is not made again, because that could take hours
        and fail in the end.
        """
        try:
            yield
        except PermissionError as error:
            raise DataError(
                f"cache={self.root}: {error.filename} cannot be read: {error.strerror}",
                f"change its rights, or {ANOTHER_CACHE}",
            ) from error


def other_tokens(run: Path, cache: str) -> str:
    """The first half of a message about a run whose `Dataset.sequences` the cache no longer has."""
    return (
        f"{run} was trained on other tokens of its text than cache={cache} now has, such as those of another "
        "version of tokenizers"
    )


def folder_name(folder: Path) -> str:
    """The name of a folder in its manifest: `kind/key`."""
    return f"{folder.parent.name}/{folder.name}"
