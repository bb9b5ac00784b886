"""Whether the kernel that a configuration asks for can run on this machine, and the folder in which it is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.failures.failure import Mistake
from experiments.settings.run import Settings

if TYPE_CHECKING:
    import torch


def check_kernel(settings: Settings) -> None:
    """Raise Mistake for backend=cuda if no GPU can run it. Other backends run anywhere, so torch isn't imported."""
    if settings.backend != "cuda":
        return
    from attention.kernels.cuda.kernel import absence
    from attention.layers.attend import BACKENDS
    from experiments.measure.hardware import resolve_device

    refusal = absence(resolve_device(settings.trainer.device))
    if refusal is not None:
        others = ", ".join(backend for backend in BACKENDS if backend != "cuda")
        raise Mistake(f"backend=cuda: {refusal}; here it must be one of {others}")


def set_kernel_cache(settings: Settings, say: Callable[[str], None] | None = None) -> None:
    """Set the cache folder in which compiled kernels are looked for and kept. This builds nothing yet.

    say: receives a line before a kernel is built and one after it.
    """
    from attention.kernels.compiled.library import build_in

    build_in(Path(settings.cache), say)


def why_slower(settings: Settings, device: torch.device) -> str | None:
    """A sentence why `backend=auto` can't use the compiled kernel on this machine, or None if it can."""
    from attention.kernels.compiled.kernel import absence

    if settings.backend != "auto" or device.type != "cpu" or (reason := absence()) is None:
        return None
    return f"attention runs without the compiled kernel, which makes it several times slower: {reason}"
