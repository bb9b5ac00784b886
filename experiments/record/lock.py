"""A lock by which only one process at a time works in a run folder. The system releases it when its process dies."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from experiments.files.disk import open_lock, open_regular, take_lock
from experiments.record.errors import RunFolderError, disk_errors_as_failures

# `flock` itself and not a library around it: the file names the holder, which a message passes on, and a file system
# without locks, or whose locks other hosts do not see, is refused
# a process that asks for the `holder` takes the lock for a moment
WAIT_SECONDS = 0.5


class TakenError(RunFolderError):
    """The folder belongs to another process, which trains in it or has removed it."""


class Lock:
    """The file `lock` of a run folder; the line in it names the holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._line = ""  # that names this process

    def acquire(self) -> None:
        """Take the lock until `release`. Raises TakenError, and RunFolderError if locks do not work."""
        deadline = time.monotonic() + WAIT_SECONDS
        with disk_errors_as_failures(self.path):
            self._descriptor = open_lock(self.path)
            try:
                while not take_lock(self._descriptor):
                    if time.monotonic() > deadline:
                        holder = self.holder() or "another process"
                        raise TakenError(in_use(self.path.parent, holder))
                    time.sleep(0.05)
                if not self._is_in_place():
                    gone = "another process removed it in the meantime; give the same command again"
                    raise TakenError(f"{self.path.parent}: {gone}")
                os.ftruncate(self._descriptor, 0)
                self._line = f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
                os.pwrite(self._descriptor, f"{self._line}\n".encode(), 0)
                # a network file system shows it to other hosts only then
                os.fsync(self._descriptor)
            except BaseException:
                self.release()
                raise

    def check(self) -> None:
        """Raises RunFolderError if another process has the lock too, as on a file system whose locks are not shared by
        hosts, and if the folder is no longer in its place; does nothing if this object does not have the lock.
        """
        if self._descriptor is None:
            return
        if not self._is_in_place():
            raise RunFolderError(
                f"{self.path.parent}: it was moved, removed or replaced while this run trained in it; put it back, and "
                "the same command continues"
            )
        with disk_errors_as_failures(self.path), open_regular(self.path) as file:
            holder = file.readline().decode(errors="replace").strip()
        if holder != self._line:
            raise RunFolderError(
                f"{self.path.parent}: {holder or 'another process'} trains in it too, because this file system does "
                "not share its locks; stop one of them, or set runs= to another folder"
            )

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._descriptor is not None

    def _is_in_place(self) -> bool:
        """Whether the path is still the file that was opened. Raises RunFolderError."""
        assert self._descriptor is not None
        with disk_errors_as_failures(self.path):
            try:
                return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
            except (FileNotFoundError, NotADirectoryError):
                return False

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> str | None:
        """The present holder of the lock, as `process 7 on host since ...`; None if there is none.

        Also None on a file system without locks, on which nobody can train.
        """
        try:
            file = open_regular(self.path)
        except OSError:
            return None
        with file:
            try:
                # NFS refuses an exclusive lock of a file that is open for reading only
                free = take_lock(file.fileno(), shared=True)
            except OSError:
                return None
            return None if free else file.read(1000).decode(errors="replace").strip() or "another process"


def in_use(folder: Path, holder: str) -> str:
    """A message about a run folder in which another process trains."""
    return f"{folder}: {holder} trains in it; wait for it, or stop it"
