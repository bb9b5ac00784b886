"""The hardware of this machine, and the precision in which it is fast."""

from __future__ import annotations

import os
import platform
from typing import Literal

import torch

from experiments.failures.failure import Mistake
from experiments.failures.wording import plural
from experiments.measure.cores import cpu_field
from experiments.settings.trainer import Precision


def compiler_turned_off() -> str:
    """The variable of the environment by which torch.compile compiles nothing; empty if there is none."""
    names = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
    return next((name for name in names if os.environ.get(name) == "1"), "")


def resolve_device(device: str) -> torch.device:
    """The device of the settings; `auto` is the GPU if there is one. Raises Mistake for a missing GPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda"):
        available = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        if not torch.cuda.is_available():
            raise Mistake(f"trainer.device={device}, but torch finds no GPU; allowed: auto, cpu")
        if device not in available:
            raise Mistake(
                f"trainer.device={device}: this machine has no such GPU; allowed: auto, cpu, {', '.join(available)}"
            )
    return torch.device(device)


def resolve_precision(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """The precision of the settings; `auto` is bf16 if the hardware multiplies it faster than float32."""
    if precision == "auto":
        return "bf16" if fast_bf16(device) else "fp32"
    return precision


def fast_bf16(device: torch.device) -> bool:
    """Whether bfloat16 products have instructions of their own: CUDA from 8.0 on, CPUs with AMX or AVX512-BF16.

    On an EPYC with AVX512-BF16 and no AMX a whole step takes 0.36 to 0.41 of its time in float32 (docs/performance.md).
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(cpu_field("flags").split())


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES. No GPU is touched."""
    count = torch.cuda.device_count()
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[:count] if visible else [str(number) for number in range(count)]


def device_name(device: torch.device) -> str:
    """The GPU's name, or the CPU's with the number of threads torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = cpu_field("model name") or platform.processor() or platform.machine()
    threads = torch.get_num_threads()
    return f"{name}, {threads} {plural('thread', threads)}"
