"""The kernels that compute `attend`, one file each.

Each file defines `attend(problem)`, and `refusal(problem)` if the kernel can't do every problem.
"""

from __future__ import annotations

from pathlib import Path


def kernel_modules() -> dict[str, str]:
    """The modules of the kernels by the kernels' names: the files of this folder that define `attend`.

    The files are read but not imported, so this needs neither torch nor the libraries of a kernel.
    """
    paths = (path for folder in __path__ for path in Path(folder).glob("*.py"))
    files = (path for path in paths if "\ndef attend(" in path.read_text(encoding="utf-8"))
    return {path.stem.removesuffix("_kernel"): f"{__name__}.{path.stem}" for path in sorted(files)}
