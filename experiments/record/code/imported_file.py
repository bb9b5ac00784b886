"""The files of the user's that stand in no folder of plugins, but that a module there imports."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from experiments.settings.plugins import TOPS

PYTHON = Path(os.__file__).parent  # its own modules; a file of the user's may have the name of one
INSTALLED = {"site-packages", "dist-packages"}  # the folders of installed packages


def imported_file(module: str) -> Path | None:
    """The file of a module of the user's that stands in none of these folders, and that an added module can import.

    It may also be bytecode, a compiled extension, or the archive that contains the module. None for a module of Python,
    of `attention` and `experiments` or of an installed package, and for one that does not exist. Nothing is imported.
    """
    top, *inner = module.split(".")
    if top in TOPS:
        return None
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    name = top
    for part in inner:
        places = None if spec is None else spec.submodule_search_locations
        name = f"{name}.{part}"
        spec = None if places is None else PathFinder.find_spec(name, places)
    if spec is None or spec.origin is None:
        return None
    # of a module in an archive, the archive
    found = next((path for path in (Path(spec.origin), *Path(spec.origin).parents) if path.is_file()), None)
    return None if found is None or _is_installed(found, len(inner)) else found


def _is_installed(file: Path, depth: int) -> bool:
    """Whether a module is one of Python or of an installed package; `depth` is the number of dots in its name."""
    folder = file.parents[depth + (file.name == "__init__.py")]
    return bool(INSTALLED & {*file.parts}) or file.is_relative_to(PYTHON) or any(folder.glob("*.dist-info"))
