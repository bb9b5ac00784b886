"""The cores and GPUs of this machine, which are divided among the cells that run side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from experiments.cells.reservations import Reservations
from experiments.failures.failure import Mistake
from experiments.measure.cores import can_be_pinned, usable
from experiments.measure.devices import device_count, gpu_identity, gpus_for, on_gpu
from experiments.measure.limits import free_bytes
from experiments.settings.run import Settings

Workers = int | Literal["auto"]


def parse_workers(text: str) -> Workers:
    """The value of `--workers`. Raises Mistake unless it is `auto` or a number from 1 on."""
    if text == "auto":
        return "auto"
    return _number_of_cells("--workers", text, "auto, or ")


def parse_per_device(text: str) -> int:
    """The value of `--per-device`. Raises Mistake unless it is a number from 1 on."""
    return _number_of_cells("--per-device", text)


def _number_of_cells(option: str, text: str, otherwise: str = "") -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise Mistake(f"{option} {text}".rstrip() + f": must be {otherwise}a number of cells from 1 on")


@dataclass(frozen=True)
class Resources:
    """The resources that one cell has for itself."""

    cores: tuple[int, ...] = ()  # numbers; none on a GPU
    pinned: bool = False  # whether its process is kept to these cores, or may use idle ones
    device: str | None = None  # one or more GPUs, as in CUDA_VISIBLE_DEVICES; None on a CPU


class Allocator(Protocol):
    """Gives out cores or GPUs, by their names."""

    def take(self, names: Sequence[str], count: int) -> list[str]:
        """Take `count` of the named ones; none if fewer are free."""

    def release(self, names: Sequence[str]) -> None:
        """Free what was taken."""


class LocalAllocator:
    """Cores or GPUs that this process divides among its cells. No other process is asked."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, names: Sequence[str], count: int) -> list[str]:
        """Take the first `count` free ones; none if fewer are free."""
        free = [name for name in names if name not in self._taken][:count]
        if len(free) < count:
            return []
        self._taken.update(free)
        return free

    def release(self, names: Sequence[str]) -> None:
        """Free what was taken."""
        self._taken.difference_update(names)


class ResourcePool:
    """The free cores and GPUs of this machine, of which at most `at_once` cells have some at the same time."""

    def __init__(
        self, at_once: int, pinned: bool = False, cores: Allocator | None = None, gpus: Allocator | None = None
    ) -> None:
        self.at_once = at_once
        self._pinned = pinned and can_be_pinned()
        self._cores, self._gpus = cores or LocalAllocator(), gpus or LocalAllocator()
        self._usable = list(map(str, usable()))
        self._taken = 0

    def acquire(self, settings: Settings) -> Resources | None:
        """The resources that a cell needs: a GPU for each of its devices, or cores for its threads.

        None if they are not free.
        """
        if self._taken == self.at_once:
            return None
        count = device_count(settings)
        if on_gpu(settings):
            gpus = gpus_for(settings)
            # a cell that needs more than there are starts, and is refused with a reason
            taken = self._gpus.take(gpus, min(count, len(gpus)))
            resources = Resources(device=",".join(taken))
        else:
            taken = self._cores.take(self._usable, min(settings.trainer.threads * count, len(self._usable)))
            resources = Resources(tuple(map(int, taken)), self._pinned)
        self._taken += bool(taken)
        return resources if taken else None

    def release(self, resources: Resources) -> None:
        """Free resources that `acquire` gave."""
        self._taken -= 1
        if resources.device is None:
            self._cores.release([str(core) for core in resources.cores])
        else:
            self._gpus.release(resources.device.split(","))


def reserved_pool() -> ResourcePool:
    """The cores and GPUs that no other process of this user has reserved, for one cell."""
    return ResourcePool(1, True, Reservations("core"), Reservations("gpu", gpu_identity))


def pool_for(cells: Sequence[Settings], workers: Workers, per_device: int = 1) -> ResourcePool:
    """The resources for the cells that are to be trained side by side, of which at least `per_device` may share a GPU.

    `auto`: as many cells as there are cores for their threads, GPUs, and memory for the largest of them. More workers
    than that share the GPUs evenly. If the cells take every core, each is kept to its own cores; otherwise not, because
    another sweep may use the first ones. Raises Mistake for more workers than the cores allow, and for cells on a CPU
    that are to share a device.
    """
    if per_device > 1 and not any(on_gpu(cell) for cell in cells):
        raise Mistake(
            f"--per-device {per_device}: these cells train on a CPU, where each has its own cores",
            "leave it out; --workers N trains N cells at once",
        )
    on_cores, on_gpus = _capacity(cells)
    capacity = max(1, on_cores + on_gpus * per_device)
    # a cell on a GPU keeps a core busy, which tells the GPU what to do
    most = max(capacity, len(usable())) if on_gpus else capacity
    if workers == "auto":
        at_once = min(len(cells), capacity)
        at_once = min(at_once, _cells_in_memory(cells)) if at_once > 1 else at_once
    elif 1 <= workers <= most:
        at_once = min(len(cells), workers)
        if on_gpus:
            per_device = max(per_device, math.ceil((workers - on_cores) / on_gpus))
    else:
        raise Mistake(
            f"--workers {workers}: this machine has room for {most} of these cells at once; "
            f"allowed: auto, 1{f' to {most}' if most > 1 else ''}",
            "each cell on a CPU has trainer.threads cores for itself; GPUs are shared by at most one cell per core",
        )
    gpus = Reservations("gpu", gpu_identity, per_device)  # another sweep may use the same GPUs
    return ResourcePool(max(1, at_once), pinned=at_once == capacity, gpus=gpus)


def _capacity(cells: Sequence[Settings]) -> tuple[int, int]:
    """The number of cells that can have cores for themselves, and of those that can have GPUs for themselves."""
    threads = [cell.trainer.threads * device_count(cell) for cell in cells if not on_gpu(cell)]
    on_cores = len(usable()) // min(threads) if threads else 0
    of_gpus = [cell for cell in cells if on_gpu(cell)]
    gpus = {name for cell in of_gpus for name in gpus_for(cell)}
    # a cell that needs more than there are starts, and is refused with a reason
    return on_cores, max(1, len(gpus) // min(map(device_count, of_gpus))) if of_gpus else 0


def _cells_in_memory(cells: Sequence[Settings]) -> int:
    """The number of cells that fit into free memory, if all were like the one that computes most in a step."""
    from experiments.tasks.choose import task_of
    from experiments.training.predicted_memory import predict_peak_bytes

    on_cpu = [cell for cell in cells if not on_gpu(cell)]
    if not on_cpu:
        return len(cells)
    largest = max(on_cpu, key=lambda cell: cell.layers * cell.hidden_size * cell.batch_size * cell.length)
    return free_bytes() // predict_peak_bytes(largest, task_of(largest).vocabulary_size())
