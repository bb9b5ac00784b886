"""Digests of plain values, texts and files, by which runs and folders of the cache are named and distinguished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.files.disk import open_regular

BLOCK = 1 << 16  # bytes that are read at once; more would take longer for a small file
SEAL = "digest"  # key of the digest of all the other keys
# what is wrong with a content, in words
DIFFERS, MISSING = "it was changed: its digest differs", "it has no digest"


def digest(value: object) -> str:
    """Hex SHA-256 of a JSON-able value without NaN or infinity, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text_digest(text)


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its own digest, by which `unsealed` notices a change."""
    return {**content, SEAL: digest(content)}


def unsealed(content: Any) -> dict[str, Any]:
    """The content of `sealed`, without the digest. Raises ValueError, in one line, for anything else."""
    if not isinstance(content, dict):
        raise ValueError(f"it is a {type(content).__name__} instead of a mapping")
    rest = {key: value for key, value in content.items() if key != SEAL}
    if content.get(SEAL) != digest(rest):
        raise ValueError(DIFFERS if SEAL in content else MISSING)
    return rest


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
    """The bytes of a file, one block after the other."""
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            yield block
