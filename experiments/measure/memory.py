"""Measured peak memory, with a sentence about what was counted."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


class PeakMemory:
    """The largest memory [bytes] since `reset`: of the process on a CPU, of torch's allocator on a GPU.

    Pages of files, mainly of libraries, are not counted. Processes share them, and a forked process uses its parent's
    without being charged for them. `meaning` explains in words what `peak_bytes` counts. `baseline_bytes` was already
    in use at the reset.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.meaning = ""
        self.baseline_bytes = self._highest = 0
        self.reset()

    def reset(self) -> None:
        """Forget the peak so far."""
        # or the peak would depend on whether this process has prepared the corpus
        give_back_freed_memory()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self.baseline_bytes = torch.cuda.memory_allocated(self._device)
            self.meaning = "largest amount of GPU memory that tensors held at once (torch.cuda.max_memory_allocated)"
            return
        was_reset = _reset_high_water_mark()
        self.baseline_bytes, self._highest = resident_bytes(), 0
        since = "from the start of training on" if was_reset else "since the process began, as it can't be reset here"
        self.meaning = (
            f"largest resident memory of the process {since}, without files that it maps, of which "
            f"{self.baseline_bytes / 1e6:,.0f} MB (interpreter, libraries, weights) were there before the first step"
        )

    def peak_bytes(self) -> int:
        """The highest number of bytes since the last reset."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        # the system knows the peak of the sum only: what is mapped of files hardly changes
        self._highest = max(self._highest, _without_files("VmHWM"))
        return self._highest


def resident_bytes() -> int:
    """The memory that the process holds, without files; if this is unknown, the most that it ever held."""
    return _without_files("VmRSS")


def _without_files(field: str) -> int:
    resident = _status(field)
    return process_peak_bytes() if resident is None else resident - (_status("RssFile") or 0)


def process_peak_bytes() -> int:
    """The most memory that this process ever held, from getrusage, which counts in KiB, but on macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def give_back_freed_memory() -> None:
    """Make allocators return freed memory, which they keep for later, to the system as far as possible."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    # glibc's, which the CPU's tensors come from
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_high_water_mark() -> bool:
    """Reset VmHWM to the resident memory (proc(5): writing 5 to clear_refs); False if that is not possible."""
    try:
        CLEAR_REFS.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(field: str) -> int | None:
    """A field of /proc/self/status in bytes; None if there is no such file or field."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)
