"""The cores and GPUs of this machine, shared out among processes that know nothing of each other.

So are the jobs of a launcher that starts them side by side. A claim is a lock on a file, which the system releases when
its process dies.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from experiments.cells.resources import ResourcePool, Resources
from experiments.measure.cores import usable
from experiments.record.durable import disk_errors_as_failures, folder_for
from experiments.settings.disk import lock_file, open_lock, take_lock


class ClaimedResources(ResourcePool):
    """Resources for one cell that no other process has claimed in the same folder.

    folder: one that all processes of this machine share. Methods raise RunFolderError for errors of the disk.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(1, pinned=True)
        self._folder = folder / platform.node()
        self._claims: list[int] = []  # descriptors of locked files

    def release(self, resources: Resources) -> None:
        """End the claims."""
        self._taken -= 1
        self._end_claims()

    def _take_cores(self, count: int) -> Resources | None:
        cores = self._claim("core", list(map(str, usable())), count)
        return Resources(tuple(map(int, cores)), self._pinned) if cores else None

    def _take_devices(self, names: Sequence[str], count: int) -> Resources | None:
        gpus = self._claim("gpu", names, count)
        return Resources(device=",".join(gpus)) if gpus else None

    def _claim(self, kind: str, names: Sequence[str], count: int) -> list[str]:
        """So many of the names that no other process has; if there are fewer, none."""
        folder_for(self._folder)
        taken: list[str] = []
        # one process at a time, because two that need several could each take a part
        with disk_errors_as_failures(self._folder), lock_file(self._folder / "lock") as one_at_a_time:
            take_lock(one_at_a_time, wait=True)
            for name in names:
                self._claims.append(open_lock(self._folder / f"{kind}-{name}"))
                if take_lock(self._claims[-1]):
                    taken.append(name)
                else:
                    os.close(self._claims.pop())
                if len(taken) == count:
                    return taken
        self._end_claims()
        return []

    def _end_claims(self) -> None:
        while self._claims:
            os.close(self._claims.pop())
