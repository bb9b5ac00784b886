"""Files that are whole or absent, JSON that every reader accepts, and disk errors in one line."""

from __future__ import annotations

import errno
import glob
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiments.failures.failure import Failure, refusal
from experiments.files.digest import sealed, unsealed
from experiments.files.disk import (
    FOLDER_IN_THE_WAY,
    IN_THE_WAY,
    UnreadableError,
    lock_file,
    make_folder,
    read_bytes,
    take_lock,
    to_disk,
)
from experiments.files.plain import from_json

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_UNREADABLE = "it cannot be read: permission denied; change its rights (chmod), or ask its owner to"
_NO_LOCKS = "this file system has no file locks (flock), which keep two processes from the same work", ""
_IN_THE_WAY = IN_THE_WAY, "remove it"
# the reason, and `here` of DiskError
_REASONS: dict[int, tuple[str, str | None]] = {
    errno.ENOSPC: ("the disk is full", "free some space and give the same command again"),
    errno.EDQUOT: ("the disk quota is used up", "free some space and give the same command again"),
    errno.EFBIG: (
        "the file would be larger than this process may write (ulimit -f), or than this file system allows",
        "raise the limit and give the same command again",
    ),
    errno.EACCES: ("permission denied", ""),
    errno.EPERM: ("permission denied", ""),
    errno.EROFS: ("the file system is read-only", ""),
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.ENOLCK: _NO_LOCKS,
    errno.ENOSYS: _NO_LOCKS,
    errno.ENOTSUP: _NO_LOCKS,
    errno.EISDIR: (FOLDER_IN_THE_WAY, "remove it"),
    errno.ENOTEMPTY: ("another process has made this folder in the meantime", None),
}
_LOCK = ".partial.lock"  # ending of the lock of an unfinished file or folder


class DiskError(Failure):
    """A file or folder cannot be read or written. The message is one line with the path, the reason, and a remedy.

    here: the remedy at this place, or "" if only another place is one; None if neither is.
    """

    def __init__(self, path: Path, reason: str, here: str | None = "") -> None:
        super().__init__(path, reason, here)
        self.path, self.reason, self.here = path, reason, here

    def __str__(self) -> str:
        return self.message()

    def message(self, elsewhere: str = "") -> str:
        """The message, also with the remedy of another place if that is one."""
        remedies = [] if self.here is None else [remedy for remedy in (self.here, elsewhere) if remedy]
        return f"{self.path}: {self.reason}" + ("; " if remedies else "") + ", or ".join(remedies)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block, which works on `path`, into a `DiskError`.

    What the system refuses the process, whatever the path, becomes the `Failure` of `refusal`.
    """
    try:
        yield
    except OSError as error:
        if (refused := refusal(error)) is not None:
            raise refused from error
        if isinstance(error, UnreadableError):
            raise DiskError(path, _UNREADABLE, None) from error
        # a file that is missing here is missed elsewhere too
        other = error.strerror or str(error), None if error.errno == errno.ENOENT else ""
        raise DiskError(path, *_REASONS.get(error.errno or 0, other)) from error


@contextmanager
def or_elsewhere(remedy: str, kind: Callable[[str], Failure] = Failure) -> Iterator[None]:
    """Turn a `DiskError` of the block into a failure of a kind whose message also says how to choose another place.

    Of several blocks around each other the innermost, which knows best, decides.
    """
    try:
        yield
    except DiskError as error:
        raise kind(error.message(remedy)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path. If the block succeeds, the file there becomes `path`, atomically and durably.

    Whenever the process or the machine stops, `path` is either the complete old file or the complete new one. The last
    of several processes that write it has its file there. If `path` is a link, what it leads to is replaced. Remains of
    a killed process are removed. Raises DiskError.
    """
    with disk_errors(path):
        # a link stays one; `resolve` fails at a ring of them
        path = Path(os.path.realpath(path))
        if path.exists() and not (path.is_file() or path.is_dir()):
            # a device, such as /dev/null, would be gone for all programs
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        remove_abandoned(path.parent, glob.escape(path.name))
        with _reserved_name(path) as temporary:
            try:
                yield temporary
                to_disk(temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        to_disk(path.parent)


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a folder beside `path` to be filled. It becomes `path` if the block succeeds, and is removed if not.

    The content of the folder is on the disk before the folder gets its name. Remains of a killed process are removed.

    replace: remove what is at `path` when the new folder is complete. Otherwise `path` must not exist, or be empty; if
    it is not, the block fails and changes nothing.

    Raises DiskError.
    """
    with disk_errors(path):
        # so that a link stays one, and . has a name
        path = Path(os.path.realpath(path))
        make_folder(path.parent)
        remove_abandoned(path.parent, glob.escape(path.name))
        with _reserved_name(path) as partial:
            try:
                partial.mkdir()
                yield partial
                for each in (*partial.rglob("*"), partial):
                    to_disk(each)
                if replace:
                    _remove(path)
                partial.rename(path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        # after the removal of the lock, so that hardly a kill comes before it
        to_disk(path.parent)


def remove_abandoned(folder: Path, pattern: str = "*") -> None:
    """Remove what killed processes have left in `folder` of new files and folders whose names match.

    Those of living processes stay.
    """
    for lock in folder.glob(f".{pattern}.*{_LOCK}"):
        # it may be gone by now, or another user's; where locks do not work, nobody is known to be dead
        with suppress(OSError), lock_file(lock) as descriptor:
            if take_lock(descriptor):
                _remove(lock.with_suffix(""))
                lock.unlink()


@contextmanager
def _reserved_name(path: Path) -> Iterator[Path]:
    """Yield an unused path beside `path`, of which `remove_abandoned` removes nothing while this process lives."""
    # the lock is a file, because NFS does not show other hosts the lock of a folder
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_LOCK, dir=path.parent)
        lock = Path(name)
        try:
            with suppress(OSError):
                take_lock(descriptor, wait=True)
            # another process may have removed the file before it was locked
            if lock.exists():
                yield lock.with_suffix("")
                return
        finally:
            lock.unlink(missing_ok=True)
            os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove whatever is at a path, if anything is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Replace the file `path` by `text`, atomically. Raises DiskError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by JSON that contains its own digest, for `read_sealed`. Raises DiskError."""
    write(path, to_json(sealed(_finite(content)), indent=2) + "\n")


def read_sealed(path: Path) -> dict[str, Any]:
    """The content that `write_sealed` wrote.

    Raises OSError, and ValueError in one line if the file contains anything else.
    """
    return unsealed(from_json(read_bytes(path)))


def folder_for(path: Path) -> Path:
    """Make a folder for files that others rely on, with its parents. Raises DiskError."""
    with disk_errors(path):
        make_folder(path)
    return path


def check_writable(path: Path) -> None:
    """Raises DiskError if this process may not put a file or a folder at a path, before it computes what to put there.

    Nothing is left behind.
    """
    with disk_errors(path):
        # only a file at the path itself would be replaced; with one above it, or a link to nothing, the next line fails
        folder = path if path.is_dir() else next(each for each in path.parents if os.path.lexists(each))
        with tempfile.TemporaryFile(dir=folder):
            pass


def swept(folder: Path) -> Path:
    """Make a folder for files that a library writes, and remove what a killed process left there in hidden files.

    Only one process at a time may write there. Raises DiskError.
    """
    folder_for(folder)
    for left in folder.glob(".*"):
        # it may be another program's, such as a folder of Jupyter's or a file that NFS keeps while it is open
        with suppress(OSError):
            left.unlink()
    return folder


def to_json(value: Any, indent: int | None = None) -> str:
    """Standard JSON of `value`. The standard has no NaN, so non-finite numbers become the strings nan, inf and -inf."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def number(value: Any) -> Any:
    """Read back the strings that `to_json` writes for non-finite numbers; other values are returned unchanged."""
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
