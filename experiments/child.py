"""A module of this project as a process of its own, told its run folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def child(module: str, folder: Path) -> dict[str, Any]:
    """`args` and `env` for subprocess: `python -m module folder`, wherever this process was started."""
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"args": [sys.executable, "-m", module, str(folder)], "env": os.environ | {"PYTHONPATH": search}}
