"""Triton's programs run in its interpreter where there is no GPU: it asks when it is first imported, so before that."""

from __future__ import annotations

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
