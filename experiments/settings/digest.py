"""Digests of plain values, texts and files, by which runs and folders of the cache are named and told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

BLOCK = 1 << 20


def digest(value: object) -> str:
    """Hex SHA-256 of a JSON-able value without NaN or infinity, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text_digest(text)


def text_digest(text: str) -> str:
    """Hex SHA-256 of a text in UTF-8."""
    return bytes_digest([text.encode()])


def file_digest(path: Path) -> str:
    """Hex SHA-256 of the bytes of a file, which may be larger than the memory."""
    return bytes_digest(blocks(path))


def bytes_digest(parts: Iterable[bytes]) -> str:
    """Hex SHA-256 of all the bytes, one part after the other, however they are divided."""
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(part)
    return sha256.hexdigest()


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, 1 MiB at a time."""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block
