"""Whether the attention kernel that a configuration asks for can run on this machine."""

from __future__ import annotations

from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings


def check_kernel(settings: Settings) -> None:
    """Raises Mistake for backend=triton where no GPU can run it; the others run anywhere, and torch isn't imported."""
    if settings.backend != "triton":
        return
    from attention.kernels import triton_kernel
    from attention.layers.core import BACKENDS
    from experiments.measure.hardware import resolve_device

    refusal = triton_kernel.absence(resolve_device(settings.trainer.device))
    if refusal is not None:
        others = ", ".join(backend for backend in BACKENDS if backend != "triton")
        raise Mistake(f"backend=triton: {refusal}; here it must be one of {others}")
