"""Model FLOPs utilisation: the FLOPs that the model needs, as a share of the device's peak."""

from __future__ import annotations

import re

import torch

# Dense matrix products without sparsity, TFLOP/s: (bf16, fp32 without TF32), from the vendor's data sheets
PEAKS = {
    "B200": (2250.0, 75.0),
    "H200 NVL": (835.0, 60.0),
    "H200": (989.0, 67.0),
    "H100 PCIe": (756.0, 51.0),
    "H100 NVL": (835.0, 60.0),
    "H100": (989.0, 67.0),
    "L40S": (362.0, 91.6),
    "L4": (121.0, 30.3),
    "A100": (312.0, 19.5),
    "A40": (149.7, 37.4),
    "A10": (125.0, 31.2),
    "RTX 4090": (165.2, 82.6),
    "RTX 3090": (71.0, 35.6),
}
# a word that tells a card from the known one whose name it also has, or says that it is a part of it (MIG, vGPU)
OTHER = re.compile(r"Ti|D|SUPER|Laptop|MIG|\d+[ABCQ]")


def peak_flops(name: str, precision: str) -> float | None:
    """The FLOP/s of the GPU called `name`, as torch names it, in `fp32` or `bf16`; None for a GPU without an entry.

    CPUs have no entry, because their peak depends on clock and power limits that no table has. Nor has a part of a GPU,
    or another card whose name contains that of a known one.
    """
    words = name.replace("-", " ").split()
    for gpu, (bf16, fp32) in PEAKS.items():
        if set(gpu.split()) <= set(words) and not any(map(OTHER.fullmatch, words)):
            return (bf16 if precision == "bf16" else fp32) * 1e12
    return None


def mfu(tokens_per_second: float, flops_per_token: float, device: torch.device, precision: str) -> float | None:
    """Share of the device's peak in (0, 1] that useful work reached (Chowdhery et al. 2022, 2204.02311, appendix B)."""
    if device.type != "cuda":
        return None
    peak = peak_flops(torch.cuda.get_device_name(device), precision)
    return None if peak is None else tokens_per_second * flops_per_token / peak
