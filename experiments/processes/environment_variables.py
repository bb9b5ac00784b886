"""The environment of a process of `attn` before torch is imported, unless its user decides otherwise."""

from __future__ import annotations

import os
import sys

TUNED = {
    # two threads beside a busy core fall off a cliff while OpenMP spins for long, and are slower than one where it
    # sleeps at once: it spins for 5,000 rounds (docs/kernels.md)
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "5000",
    # glibc, keep what is freed, in huge pages: by default it goes back to the system and is asked for again in every
    # step; read at the start of a process only
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=1099511627776",
}
# for processes that compute nothing with numpy: its library of products starts threads at import, and if it cannot, it
# ends the process by SIGINT
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
ADDED = "ATTN_TUNED"  # the names that were added, for the processes that this one starts


def set_performance_variables() -> list[str]:
    """Add the missing variables to the environment; returns their names.

    A process started by a tuned one adds nothing.
    """
    if ADDED in os.environ:
        return []
    added = [name for name in TUNED if name not in os.environ and (name != "GLIBC_TUNABLES" or sys.platform == "linux")]
    os.environ.update({name: TUNED[name] for name in added}, **{ADDED: ",".join(added)})
    return added


def untuned() -> dict[str, str]:
    """The environment as it was before `set_performance_variables`."""
    added = os.environ.get(ADDED, "").split(",")
    return {name: value for name, value in os.environ.items() if name not in (ADDED, *added)}
