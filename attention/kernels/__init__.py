"""The ways to compute `attend`, a file each: it has `attend(problem)`, and `refusal(problem)` if it can't do all."""

from __future__ import annotations

from pathlib import Path


def kernel_modules() -> dict[str, str]:
    """The module of each kernel by the kernel's name: a file of this folder that defines `attend`.

    Files are read and not imported: neither is torch, nor what a kernel needs that this machine may lack.
    """
    paths = (path for folder in __path__ for path in Path(folder).glob("*.py"))
    files = (path for path in paths if "\ndef attend(" in path.read_text(encoding="utf-8"))
    return {path.stem.removesuffix("_kernel"): f"{__name__}.{path.stem}" for path in sorted(files)}
