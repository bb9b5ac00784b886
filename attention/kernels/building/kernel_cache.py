"""The folder in which compiled kernels are kept, so that a kernel is compiled once for a machine.

A file ends with the SHA-256 of its content. A file that somebody else may have written is not used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attention.kernels.building.interruptions import signals_held, unhandled_signals_raised

SOURCE_ENDINGS = (".cpp", ".cu", ".h")
BUILD_PREFIX = "building-"  # the start of the names of what a build needs only until it ends
DIGEST_BYTES = 32

_folder = Path(os.path.expanduser("~/.cache/attn"))  # noqa: PTH111 - without a home directory it only stays as it is
_report: Callable[[str], None] | None = None


class NotKept(RuntimeError):
    """Why a file can't be kept in the folder, or isn't used."""


def keep_in(folder: Path, report: Callable[[str], None] | None = None) -> None:
    """Look for compiled kernels in this folder from now on, and put new ones there.

    The default is `.cache/attn` in the user's home directory. report: receives a line before a build and one after it.
    """
    global _folder, _report
    _folder, _report = folder, report


def say(line: str) -> None:
    """Report a line to whoever set the folder."""
    if _report is not None:
        _report(line)


def name_of_build(sources: Path, *parts: bytes) -> str:
    """A name that contains a digest of the sources in a folder and of all else that the build depends on."""
    files = sorted(path for path in sources.iterdir() if path.suffix in SOURCE_ENDINGS)
    content = b"\0".join([*(path.read_bytes() for path in files), *parts])
    return f"compiled-{hashlib.sha256(content).hexdigest()[:32]}"


def kept(name: str, what: str, build: Callable[[str], bytes]) -> Path:
    """Find a file in this user's part of the folder, or build it there, and return its path.

    name: begins with that of the build (`name_of_build`), so that a change makes another file. what: is built, for the
    report. build: receives a folder for temporary files and returns the content. Raises NotKept, OSError, and what
    `build` raises.
    """
    if os.name != "posix":
        raise NotKept("files have no owner here, so nobody can tell whose library it would be")
    folder = _folder / f"kernels-{os.geteuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(folder)
    path = folder / name
    if not _is_complete(path):
        with _only_builder(folder):
            if not _is_complete(path):
                with _announced(what):
                    _build_at(path, build)
    return path


def content(path: Path) -> bytes:
    """What was built, without its digest."""
    return path.read_bytes()[:-DIGEST_BYTES]


@contextmanager
def _announced(what: str) -> Iterator[None]:
    """Report that something is being built, and how long it took."""
    started = time.monotonic()
    say(f"building {what}")
    yield
    say(f"the kernel was built in {time.monotonic() - started:.0f} s")


def _build_at(path: Path, build: Callable[[str], bytes]) -> None:
    with unhandled_signals_raised():
        # nothing may be left to remove when the file has its name, because nobody would build, and clean up, again
        with _scratch_folder(path.parent) as temporary:
            made = build(temporary)
        _write(path, made + hashlib.sha256(made).digest())


def _write(path: Path, content: bytes) -> None:
    """Write a file that has its name only when it is complete, because another process may load it at any time."""
    descriptor, temporary = tempfile.mkstemp(prefix=BUILD_PREFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o500)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextmanager
def _scratch_folder(folder: Path) -> Iterator[str]:
    """A folder for a build, removed when the block ends. What cannot be removed is left to the next build."""
    temporary = tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=folder)
    try:
        yield temporary
    finally:
        with signals_held():
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Wait until no other process builds in the folder, and remove what killed processes have left there.

    The system releases the lock of a process that dies. On a file system without locks several may build at once.
    """
    import fcntl

    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _remove_abandoned(folder)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Remove what builds that were killed have left in the folder.

    A compiler may have outlived such a build. It writes to a path, so it can't put files into a folder that was renamed
    before it is emptied.
    """
    if abandoned := list(folder.glob(f"{BUILD_PREFIX}*")):
        removed = Path(tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=folder))
        for each in abandoned:
            each.rename(removed / each.name)
        shutil.rmtree(removed, ignore_errors=True)


def _is_complete(path: Path) -> bool:
    """Whether the file exists and has the bytes that were written.

    Loading a file that a power cut has shortened would end the process. Raises NotKept for a file that somebody else
    may have written.
    """
    if not os.path.lexists(path):
        return False
    _check_own(path)
    whole = path.read_bytes()
    return hashlib.sha256(whole[:-DIGEST_BYTES]).digest() == whole[-DIGEST_BYTES:]


def _check_own(path: Path) -> None:
    """Check that only this user can have written the file, because a loaded library runs with this user's rights.

    Raises NotKept if another user may have written it.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotKept(f"{path} is a link, another user's, or can be written by others: it is not loaded")
