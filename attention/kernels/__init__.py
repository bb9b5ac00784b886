"""The kernels that compute `attend`: a file each, or a folder for a kernel with sources in another language.

`NAME.py`, or `NAME/kernel.py`, defines `attend(problem)`, and `refusal(problem)` if the kernel can't do every problem.
"""

from __future__ import annotations

from pathlib import Path


def kernel_modules() -> dict[str, str]:
    """The modules of the kernels by the kernels' names: the files of this folder that define `attend`.

    The files are read but not imported, so this needs neither torch nor the libraries of a kernel.
    """
    modules = {}
    for folder in map(Path, __path__):
        for path in (*folder.glob("*.py"), *folder.glob("*/kernel.py")):
            if "\ndef attend(" in path.read_text(encoding="utf-8"):
                name, *inner = path.relative_to(folder).with_suffix("").parts
                modules[name] = ".".join((__name__, name, *inner))
    return dict(sorted(modules.items()))
