"""Digests of plain values and of files, by which runs and folders of the cache are named and told apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def digest(value: object) -> str:
    """Hex SHA-256 of a JSON-able value without NaN or infinity, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Hex SHA-256 of the bytes of a file, which may be larger than the memory."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
    return made.hexdigest()
