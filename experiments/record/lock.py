"""One process at a time in a run folder: a lock that the system releases when its process dies."""

from __future__ import annotations

import errno
import os
import platform
import time
from pathlib import Path

from experiments.record.durable import RunFolderError, disk_errors_as_failures
from experiments.settings.disk import open_lock, open_regular, take_lock

# whoever asks for the `holder` takes the lock for an instant
WAIT_SECONDS = 0.5


class Lock:
    """The file `lock` of a run folder; the line in it says who has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock until `release`. Raises RunFolderError where another process has it, or none can be had."""
        deadline = time.monotonic() + WAIT_SECONDS
        with disk_errors_as_failures(self.path):
            self._descriptor = open_lock(self.path)
            try:
                while not take_lock(self._descriptor):
                    if time.monotonic() > deadline:
                        holder = self.holder() or "another process"
                        raise RunFolderError(f"{self.path.parent}: {holder} trains in it; wait for it, or stop it")
                    time.sleep(0.05)
                self._check_place()
                os.ftruncate(self._descriptor, 0)
                holder = f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
                os.pwrite(self._descriptor, holder.encode(), 0)
            except BaseException:
                self.release()
                raise

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._descriptor is not None

    def _check_place(self) -> None:
        """Raise OSError where the file is no longer what its name stands for: whoever had it removed the folder."""
        assert self._descriptor is not None
        if not self.path.exists() or not os.path.samestat(os.fstat(self._descriptor), self.path.stat()):
            raise OSError(errno.ESTALE, "removed by another process in the meantime; give the same command again")

    def release(self) -> None:
        """Give the lock back; harmless where it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> str | None:
        """Who has the lock at this moment, as `process 7 on host since ...`; None if nobody has.

        None too on a file system without locks, where nobody can train.
        """
        try:
            file = open_regular(self.path)
        except OSError:
            return None
        with file:
            try:
                free = take_lock(file.fileno())
            except OSError:
                return None
            return None if free else file.read(1000).decode(errors="replace").strip() or "another process"
