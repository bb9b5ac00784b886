"""Whether the attention kernel that a configuration asks for can run on this machine."""

from __future__ import annotations

from experiments.settings import Settings


def check_backend(settings: Settings) -> None:
    """Raises ValueError for backend=triton where it can't run; all others run anywhere, and torch isn't imported."""
    if settings.backend != "triton":
        return
    from attention.kernels import triton_kernel
    from experiments.measure.hardware import resolve_device

    refusal = triton_kernel.absence(resolve_device(settings.trainer.device))
    if settings.model.position == "relative":
        refusal = "it takes no bias on the logits, as model.position=relative has"
    if refusal is not None:
        raise ValueError(f"backend=triton can't run this here: {refusal}; allowed: auto, blocked, reference, sdpa")
