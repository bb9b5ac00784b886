"""The cores and GPUs of this machine, shared out among processes that know nothing of each other.

A claim is a lock on a file, which the system releases when its process dies.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from experiments.record.durable import disk_errors_as_failures, folder_for
from experiments.settings.disk import lock_file, open_lock, take_lock


class Claims:
    """What this process has claimed of one kind of resource.

    folder: one that all processes of this machine share. kind: `core` or `gpu`. sharing: the number of claims on one
    resource, from all processes that allow as many; a claim of a process that allows one excludes all others. Methods
    raise RunFolderError for errors of the disk.
    """

    def __init__(self, folder: Path, kind: str, sharing: int = 1) -> None:
        self._folder, self._kind, self._sharing = folder / platform.node(), kind, sharing
        self._locks: dict[str, list[list[int]]] = {}  # of each claim, by the resource: descriptors of locked files

    def take(self, names: Sequence[str], count: int) -> list[str]:
        """Claim `count` of the named resources, of which this process has the fewest claims; none if fewer are free."""
        folder_for(self._folder)
        taken: list[str] = []
        # one process at a time, because two that need several could each take a part
        with disk_errors_as_failures(self._folder), lock_file(self._folder / "lock") as one_at_a_time:
            take_lock(one_at_a_time, wait=True)
            for name in sorted(names, key=lambda name: len(self._locks.get(name, []))):
                if len(taken) < count and (locks := self._claim(name)):
                    self._locks.setdefault(name, []).append(locks)
                    taken.append(name)
        if len(taken) == count:
            return taken
        self.release(taken)
        return []

    def release(self, names: Sequence[str]) -> None:
        """End a claim on each of the named resources."""
        for name in names:
            for descriptor in self._locks[name].pop():
                os.close(descriptor)

    def _claim(self, name: str) -> list[int]:
        """The locks of a claim on a resource; none if it is not free."""
        path = self._folder / f"{self._kind}-{name}"
        if self._sharing == 1:
            return self._lock(path)
        if not (locks := self._lock(path, shared=True)):
            return []
        for number in range(self._sharing):
            if part := self._lock(path.with_name(f"{path.name}-part-{number}")):
                return locks + part
        os.close(locks[0])
        return []

    def _lock(self, path: Path, *, shared: bool = False) -> list[int]:
        descriptor = open_lock(path)
        if take_lock(descriptor, shared=shared):
            return [descriptor]
        os.close(descriptor)
        return []
