"""Where the project is: `attention/`, `conf/` and `experiments/` are folders of it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
