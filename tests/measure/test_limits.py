"""The limits of groups, which a container sets, from made-up files of the system."""

from __future__ import annotations

import os

import pytest

from experiments.cells.resources import ResourcePool
from experiments.config.compose import compose
from experiments.measure import cores, limits

HOST_BYTES = 10_000


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """groups("0::/job", {"job/cpu.max": "max 100000"}) makes the files that the system shows this process."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": HOST_BYTES}))
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "own")

    def make(own, files):
        (tmp_path / "own").write_text(f"{own}\n")
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")

    return make


def of_version_1(limit, used, quota, folder=""):
    """The files of a group of version 1. Other controllers lie beside these."""
    return {
        f"memory/{folder}memory.limit_in_bytes": limit,
        f"memory/{folder}memory.usage_in_bytes": used,
        f"memory/{folder}memory.stat": "inactive_file 7\ntotal_inactive_file 100",
        f"cpu/{folder}cpu.cfs_quota_us": quota,
        f"cpu/{folder}cpu.cfs_period_us": 100_000,
    }


@pytest.mark.parametrize(
    ("own", "files", "free", "most"),
    [
        # a container, whose own group is the root of what it sees, with a third of its memory in files
        ("0::/", {"memory.max": 3000, "memory.current": 2000, "memory.stat": "anon 9\ninactive_file 1000"}, 2000, 8),
        ("0::/", {"cpu.max": "200000 100000"}, HOST_BYTES, 2),
        ("0::/", {"cpu.max": "250000 100000", "memory.max": "max", "memory.current": 5}, HOST_BYTES, 3),
        ("0::/", {"cpu.max": "max 100000"}, HOST_BYTES, 8),
        ("0::/", {"cpu.max": "10000 100000"}, HOST_BYTES, 1),
        # a job, of which the groups around it allow less
        ("0::/a/b", {"a/b/memory.max": 4000, "a/memory.max": 3000, "a/memory.current": 3500}, 0, 8),
        ("0::/a/b", {"a/b/cpu.max": "600000 100000", "a/cpu.max": "400000 100000"}, HOST_BYTES, 4),
        # the host calls the container's group by a name that it does not see
        ("0::/docker/1", {"memory.max": 3000, "cpu.max": "300000 100000"}, 3000, 3),
        ("4:memory:/\n1:cpu,cpuacct:/\n0::/", of_version_1(3000, 2000, 200_000), 1100, 2),
        ("4:memory:/docker/1\n1:cpu:/docker/1", of_version_1(3000, 2000, 200_000, "docker/1/"), 1100, 2),
        ("4:memory:/\n1:cpu:/", of_version_1(9223372036854771712, 5000, -1), HOST_BYTES, 8),
        ("4:memory:/\n1:cpu:/", {}, HOST_BYTES, 8),
    ],
)
def test_the_smallest_limit_counts(groups, own, files, free, most):
    groups(own, files)
    assert (limits.free_bytes(), limits.most_cores(8)) == (free, most)


def test_without_groups_the_machine_is_the_limit(groups):
    assert (limits.free_bytes(), limits.most_cores(8)) == (HOST_BYTES, 8)


def test_cells_share_the_time_of_a_container_and_are_not_kept_to_its_first_cores(groups, monkeypatch, tiny):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {2, 3, 5, 7}, raising=False)
    groups("0::/", {"cpu.max": "400000 100000"})
    assert cores.usable() == [2, 3, 5, 7] and cores.can_be_pinned() == hasattr(os, "sched_setaffinity")
    groups("0::/", {"cpu.max": "200000 100000"})
    assert cores.usable() == [2, 3]
    assert not ResourcePool(2, pinned=True).acquire(compose(tiny)).pinned
