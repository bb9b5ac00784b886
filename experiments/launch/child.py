"""A module of this project as a process of its own, told its folder; and why one ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def child(module: str, folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """`args` and `env` for subprocess: `python -m module folder`, wherever this process was started."""
    search = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    return {"args": [sys.executable, "-m", module, str(folder)], "env": {**environment, "PYTHONPATH": search}}


def why_ended(code: int, said: str) -> str:
    """Why a process ended with this code, in a line: its signal, or what it said last, which is no indented hint."""
    if code < 0:
        killer = signal.Signals(-code)
        return f"killed by {killer.name}" + (" (out of memory?)" if killer == signal.SIGKILL else "")
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[-1].strip() if lines else f"ended with code {code}"
