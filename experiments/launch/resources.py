"""The cores and GPUs of this machine, which are divided among the cells that run side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.measure.cores import usable
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings

Workers = int | Literal["auto"]


def parse_workers(text: str) -> Workers:
    """The value of `--workers`. Raises Mistake unless it is `auto` or a number from 1 on."""
    if text == "auto":
        return "auto"
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise Mistake(f"--workers {text}".rstrip() + ": must be auto, or a number of cells from 1 on")


@dataclass(frozen=True)
class Resources:
    """The resources that one cell has for itself."""

    cores: tuple[int, ...] = ()  # numbers; none on a GPU
    pinned: bool = False  # whether its process is kept to these cores, or may use idle ones
    device: str | None = None  # one or more GPUs, as in CUDA_VISIBLE_DEVICES; None on a CPU


class ResourcePool:
    """The free cores and GPUs of this machine, of which at most `at_once` cells have some at the same time."""

    def __init__(self, at_once: int, pinned: bool = False) -> None:
        self.at_once = at_once
        self._pinned = pinned and hasattr(os, "sched_setaffinity")
        self._taken = 0
        self._cores = usable()
        self._core_count = len(self._cores)
        self._devices: list[str] | None = None

    def acquire(self, settings: Settings) -> Resources | None:
        """The resources that a cell needs: a GPU for each of its devices, or cores for its threads.

        None if they are not free.
        """
        if self._taken == self.at_once:
            return None
        devices = device_count(settings)
        threads = min(settings.trainer.threads * devices, self._core_count)
        resources = self._take_devices(devices) if on_gpu(settings) else self._take_cores(threads)
        self._taken += resources is not None
        return resources

    def release(self, resources: Resources) -> None:
        """Free resources that `acquire` gave."""
        self._taken -= 1
        self._cores = sorted([*self._cores, *resources.cores])
        if self._devices is not None and resources.device is not None:
            self._devices += resources.device.split(",")

    def _take_cores(self, count: int) -> Resources | None:
        if len(self._cores) < count:
            return None
        taken, self._cores = self._cores[:count], self._cores[count:]
        return Resources(tuple(taken), self._pinned)

    def _take_devices(self, count: int) -> Resources | None:
        if self._devices is None:
            from experiments.measure.hardware import visible_gpus

            self._devices = visible_gpus()
        if len(self._devices) < count:
            return None
        taken, self._devices = self._devices[:count], self._devices[count:]
        return Resources(device=",".join(taken))


def on_gpu(settings: Settings) -> bool:
    """Whether a cell computes on a GPU."""
    from experiments.measure.hardware import resolve_device

    return settings.trainer.device != "cpu" and resolve_device(settings.trainer.device).type == "cuda"


def device_count(settings: Settings) -> int:
    """The number of devices of a run. `auto` is all GPUs, or all cores divided by the threads of a process."""
    devices = settings.trainer.devices
    if devices != "auto":
        return devices
    if on_gpu(settings):
        from experiments.measure.hardware import visible_gpus

        return len(visible_gpus())
    return max(1, len(usable()) // settings.trainer.threads)


def pool_for(cells: Sequence[Settings], workers: Workers) -> ResourcePool:
    """The resources for the cells that are to be trained side by side.

    `auto`: as many cells as there are cores for their threads, GPUs, and memory for the largest of them. If they take
    every core, each cell is kept to its own cores; otherwise not, because another sweep may use the first ones. Raises
    Mistake for more workers than the cores and GPUs allow.
    """
    capacity = _capacity(cells)
    if workers == "auto":
        at_once = min(len(cells), capacity)
        at_once = min(at_once, _cells_in_memory(cells)) if at_once > 1 else at_once
    elif 1 <= workers <= capacity:
        at_once = min(len(cells), workers)
    else:
        raise Mistake(
            f"--workers {workers}: this machine has room for {capacity} of these cells at once; "
            f"allowed: auto, 1{f' to {capacity}' if capacity > 1 else ''}",
            "each cell has trainer.threads cores, or a GPU, for itself",
        )
    return ResourcePool(max(1, at_once), pinned=at_once == capacity)


def _capacity(cells: Sequence[Settings]) -> int:
    threads = [cell.trainer.threads * device_count(cell) for cell in cells if not on_gpu(cell)]
    count = len(usable()) // min(threads) if threads else 0
    if devices := [device_count(cell) for cell in cells if on_gpu(cell)]:
        from experiments.measure.hardware import visible_gpus

        count += len(visible_gpus()) // min(devices)
    return max(1, count)


def _cells_in_memory(cells: Sequence[Settings]) -> int:
    """The number of cells that fit into free memory, if all were like the one that computes most in a step."""
    import psutil

    from experiments.tasks.choose import task_of
    from experiments.training.predicted_memory import predict_peak_bytes

    on_cpu = [cell for cell in cells if not on_gpu(cell)]
    if not on_cpu:
        return len(cells)
    largest = max(on_cpu, key=lambda cell: cell.layers * cell.hidden_size * cell.batch_size * cell.length)
    return psutil.virtual_memory().available // predict_peak_bytes(largest, task_of(largest).vocabulary_size())
