"""Files that are whole or absent, JSON that every reader accepts, and disk errors in one line."""

from __future__ import annotations

import errno
import glob
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiments.failures.failure import Failure
from experiments.files.digest import sealed, unsealed
from experiments.files.disk import UnreadableError, make_folder, read_bytes, take_lock, to_disk
from experiments.files.plain import from_json

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_ANOTHER_DISK = "free some space or set runs= to another disk, then give the same command again"
_ANOTHER_FOLDER = "choose a folder that you may write (runs=FOLDER for a training; --runs or --out for another command)"
_UNREADABLE = "it cannot be read: permission denied; change its rights (chmod), or ask its owner to"
_IN_THE_WAY = "a file stands where a folder should be; remove it or set runs= to another folder"
_NO_LOCKS = (
    "this file system has no file locks (flock), which keep a run to one process at a time; set runs= to a folder on "
    "another, such as a disk of this machine"
)
_REASONS = {
    errno.ENOSPC: f"the disk is full; {_ANOTHER_DISK}",
    errno.EDQUOT: f"the disk quota is used up; {_ANOTHER_DISK}",
    errno.EFBIG: "the file would be larger than this process may write (ulimit -f), or than this file system allows; "
    "raise the limit or set runs= to another disk, then give the same command again",
    errno.EACCES: f"permission denied; {_ANOTHER_FOLDER}",
    errno.EPERM: f"permission denied; {_ANOTHER_FOLDER}",
    errno.EROFS: f"the file system is read-only; {_ANOTHER_FOLDER}",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.ENOLCK: _NO_LOCKS,
    errno.ENOSYS: _NO_LOCKS,
    errno.ENOTSUP: _NO_LOCKS,
    errno.EISDIR: "a folder stands where a file should be; remove it or set runs= to another folder",
    errno.ENOTEMPTY: "another process has made this folder in the meantime",
}


class RunFolderError(Failure):
    """A run folder cannot be used. The message is one line with the path, the reason, and a remedy."""


@contextmanager
def disk_errors_as_failures(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block, which works on `path`, into a `RunFolderError`."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise RunFolderError(f"{path}: {_UNREADABLE if isinstance(error, UnreadableError) else reason}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path. If the block succeeds, the file there becomes `path`, atomically and durably.

    Whenever the process or the machine stops, `path` is either the complete old file or the complete new one. Raises
    RunFolderError.
    """
    temporary = path.with_name(f".{path.name}.partial")
    with disk_errors_as_failures(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            # a device, such as /dev/null, would be gone for all programs
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        try:
            yield temporary
            to_disk(temporary)
            temporary.replace(path)
            to_disk(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder beside `path` to be filled. It becomes `path` if the block succeeds, and is removed if not.

    `path` must not exist, or be empty; otherwise the block fails and changes nothing. The content of the folder is on
    the disk before the folder gets its name. Remains of a killed process are removed. Raises RunFolderError.
    """
    with disk_errors_as_failures(path):
        make_folder(path.parent)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            with suppress(FileNotFoundError), _locked(left) as abandoned:
                if abandoned:
                    shutil.rmtree(left, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        with _locked(partial):
            try:
                yield partial
                partial.chmod(0o755)
                for each in (*partial.rglob("*"), partial):
                    to_disk(each)
                partial.rename(path)
                to_disk(path.parent)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder as long as the process lives; False if another process has it, or locks do not work."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        free = False
        with suppress(OSError):
            free = take_lock(descriptor)
        yield free
    finally:
        os.close(descriptor)


def write(path: Path, text: str) -> None:
    """Replace the file `path` by `text`, atomically. Raises RunFolderError."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by JSON that contains its own digest, for `read_sealed`. Raises RunFolderError."""
    write(path, to_json(sealed(_finite(content)), indent=2) + "\n")


def read_sealed(path: Path) -> dict[str, Any]:
    """The content that `write_sealed` wrote.

    Raises OSError, and ValueError in one line if the file contains anything else.
    """
    return unsealed(from_json(read_bytes(path)))


def folder_for(path: Path) -> Path:
    """Make a folder for files that others rely on, with its parents. Raises RunFolderError."""
    with disk_errors_as_failures(path):
        make_folder(path)
    return path


def swept(folder: Path) -> Path:
    """The same for files that a library writes. Remains of a killed process, which are hidden files, are removed.

    Only one process at a time may write there. Raises RunFolderError.
    """
    with disk_errors_as_failures(folder):
        make_folder(folder)
        for left in folder.glob(".*"):
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
