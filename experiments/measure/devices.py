"""The devices of a run, as its settings name them. torch is imported only if they may be GPUs."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from experiments.failures.failure import Mistake
from experiments.measure.cores import usable
from experiments.settings.run import Settings


def on_gpu(settings: Settings) -> bool:
    """Whether a cell computes on a GPU."""
    from experiments.measure.hardware import resolve_device

    return settings.trainer.device != "cpu" and resolve_device(settings.trainer.device).type == "cuda"


def gpus_for(settings: Settings) -> list[str]:
    """The GPUs of which a cell on a GPU may take some: all of this process, or the one of its number."""
    from experiments.measure.hardware import visible_gpus

    number = settings.trainer.device.partition(":")[2]
    return [visible_gpus()[int(number)]] if number else visible_gpus()


def device_count(settings: Settings) -> int:
    """The number of devices of a run. `auto` is all GPUs, or all cores divided by the threads of a process."""
    devices = settings.trainer.devices
    if devices != "auto":
        return devices
    if on_gpu(settings):
        from experiments.measure.hardware import visible_gpus

        return len(visible_gpus())
    return max(1, len(usable()) // settings.trainer.threads)


def check_devices(settings: Settings) -> None:
    """Raises Mistake for a GPU that is missing, and for devices that this machine lacks or a run cannot be divided
    among.
    """
    if settings.trainer.device not in ("auto", "cpu"):
        from experiments.measure.hardware import resolve_device

        resolve_device(settings.trainer.device)
    if settings.trainer.devices != 1:
        count = device_count(settings)
        check_division(settings, count, count)


def check_division(settings: Settings, count: int, local: int) -> None:
    """Raises Mistake if a run cannot be divided among `count` devices, or if this machine does not have `local` of
    them.
    """
    if (reason := settings.why_not_over(count)) is not None:
        raise Mistake(reason)
    if on_gpu(settings):
        from experiments.measure.hardware import visible_gpus

        kind, available = "GPUs", len(visible_gpus())
    else:
        kind, available = "cores for their threads", len(usable()) // settings.trainer.threads
    if count > 1 and local > available:
        raise Mistake(f"trainer.devices={local}: this machine has {available} {kind}; allowed: auto, 1 to {available}")


def gpu_identity(name: str) -> str:
    """The identity of a GPU, the same in all processes: its UUID, or its name if NVIDIA's driver does not tell it.

    name: as in CUDA_VISIBLE_DEVICES. A number may mean another GPU in a job of a cluster; a UUID may be shortened.
    """
    uuids = _gpu_uuids()
    return uuids.get(name) or next((uuid for uuid in uuids.values() if uuid.startswith(name)), name)


@cache
def _gpu_uuids() -> dict[str, str]:
    """The UUIDs of this machine's GPUs by their numbers. No GPU is touched."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^GPU (\d+): .*\(UUID: (\S+)\)$", listed, re.MULTILINE))
