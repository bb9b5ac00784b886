"""Files and folders on the disk, read without waiting for a writer, and written so that they survive a power cut."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

LARGEST_READ = 1 << 30  # bytes of a file that is read whole
IN_THE_WAY = "a file stands where a folder should be"
FOLDER_IN_THE_WAY = "a folder stands where a file should be"


class UnreadableError(PermissionError):
    """A file exists that this process may not read."""


class _NamedFile(io.FileIO):
    """An open file whose errors, such as those of a disk or of a network file system, have its path."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor, "rb")
        self._path = str(path)

    def readinto(self, buffer: Any) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            error.filename = error.filename or self._path
            raise

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            error.filename = error.filename or self._path
            raise


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, also for other than regular files, as a pipe could block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except PermissionError as error:
        raise UnreadableError(error.errno, error.strerror, str(path)) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, FOLDER_IN_THE_WAY, str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return io.BufferedReader(_NamedFile(descriptor, path))
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > LARGEST_READ:
            raise OSError(errno.ERANGE, f"it has {size:,} bytes, which are too many to read", str(path))
        return file.read()


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a regular file, with line feeds as line ends. Raises OSError and UnicodeDecodeError."""
    with io.TextIOWrapper(open_regular(path), encoding=encoding) as file:
        return file.read()


def files_named(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder whose names match a pattern such as `*.json`, by name; none if there is no folder.

    Raises OSError, also for a folder that may not be read, which `Path.glob` takes for an empty one.
    """
    try:
        return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise UnreadableError(error.errno, error.strerror, str(folder)) from None


def written_at(path: Path) -> int:
    """The time at which a file was written, in nanoseconds since 1970; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def open_lock(path: Path) -> int:
    """Open the file of a lock, and make it if it is missing.

    The lock is released when the file is closed. Raises OSError.
    """
    # without waiting for whoever reads a pipe in its place
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """A block in which the file of a lock is open. Raises OSError."""
    descriptor = open_lock(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, *, wait: bool = False, shared: bool = False) -> bool:
    """Take the lock of an open file, which the system releases when its process dies; returns whether it was free.

    shared: others may have it shared too. Raises OSError, also on a file system without locks.

    The library `filelock` keeps the open file to itself. Here the holder writes its name into the file, and compares
    it with the one that is in the folder now.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def why_no_folder(path: Path) -> str | None:
    """The reason why there can be no folder at a path, whatever the rights; None if there is one, or can be."""
    try:
        return None if stat.S_ISDIR(path.stat().st_mode) else IN_THE_WAY
    except NotADirectoryError:
        return IN_THE_WAY
    except OSError as error:
        return error.strerror if error.errno == errno.ENAMETOOLONG else None


def why_no_new_folder(path: Path) -> str | None:
    """The reason why this process cannot make a folder at a path; None if it can, or if only the disk is full.

    It makes one in the nearest folder that there is, and removes it.
    """
    while not path.is_dir():
        path = path.parent
    try:
        tempfile.TemporaryDirectory(dir=path).cleanup()
    except OSError as error:
        return None if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"no folder can be made in {path}"
    return None


def make_folder(path: Path) -> None:
    """Make a folder with its missing parents, so that it survives a power cut before anything is put into it.

    Raises OSError.
    """
    missing = [path]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        made_folder(each)


def made_folder(path: Path) -> bool:
    """Make a folder in an existing one, as `make_folder` does; returns whether this process made it.

    Raises OSError.
    """
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_dir():
            return False
        if path.is_symlink() and not path.exists():
            message = f"it is a link to {path.readlink()}, where there is no folder"
            raise FileNotFoundError(errno.ENOENT, message, str(path)) from None
        raise
    to_disk(path.parent)
    return True
