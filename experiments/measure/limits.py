"""The memory and processor time that this process may use: those of the machine, or what its groups are allowed.

A container, a job of a cluster and a service of systemd are such groups (cgroups), of version 1 or 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")  # a line for each hierarchy: its number, controllers, and the path of the group
# limit, use, and the part of the use that the system takes back when it is needed, in versions 2 and 1
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_bytes() -> int:
    """The memory that is free on this machine and in all groups of this process."""
    import psutil

    return min([psutil.virtual_memory().available, *map(_free_bytes, _groups("memory"))])


def most_cores(cores: int) -> int:
    """As many of the cores as all groups of this process have time for, rounded up."""
    return math.ceil(min([cores, *map(_cores, _groups("cpu"))]))


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in, and of those around them, as far as they are to be seen.

    What a container sees as the root is often its own group, whatever /proc calls it.
    """
    for line in _lines(OWN_GROUPS):
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            root = CGROUPS / controller if controllers else CGROUPS
            folder = root / group.lstrip("/")
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(root))


def _free_bytes(group: Path) -> int:
    """The memory that a group still may use; without a limit, more than any machine has."""
    of_kind = dict(line.split() for line in _lines(group / "memory.stat"))
    free = [
        max(0, limit - (_number(group / used) or 0) + int(of_kind.get(returned, 0)))
        for most, used, returned in MEMORY_FILES
        if (limit := _number(group / most)) is not None
    ]
    return min(free, default=1 << 63)


def _cores(group: Path) -> float:
    """The number of cores for which a group has time; infinite without a limit."""
    both = " ".join(_lines(group / "cpu.max")) or " ".join(
        line for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us") for line in _lines(group / name)
    )
    quota, _, period = both.partition(" ")
    # it is `max` or -1 without a limit
    return int(quota) / int(period) if quota.isdigit() else math.inf


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no file, or if it says `max`."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    """The lines of a file of the system; none if there is no such file."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
