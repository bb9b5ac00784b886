"""A folder with the digests of its files, by which readers notice a change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from experiments.files.digest import DIFFERS, MISSING, bytes_digest, file_digest, unsealed
from experiments.files.durable import write_sealed
from experiments.files.plain import from_json
from experiments.record.errors import disk_errors_as_failures

DIGESTS = "digests.json"


def write_digests(folder: Path, names: Iterable[str]) -> None:
    """Write down the digests of these files of the folder. Raises RunFolderError."""
    with disk_errors_as_failures(folder / DIGESTS):
        write_sealed(folder / DIGESTS, {name: file_digest(folder / name) for name in names})


def parse_digests(content: bytes) -> dict[str, str]:
    """Digests by the names of files. Raises ValueError, in one line."""
    try:
        return unsealed(from_json(content))
    except ValueError as error:
        raise ValueError(f"{DIGESTS}: {error}") from error


def check_digest(name: str, content: bytes, digests: dict[str, str] | None) -> None:
    """Raises ValueError that names the file, unless its content is as it was written. digests: None if the folder has
    none.
    """
    if (digests or {}).get(name) != bytes_digest([content]):
        reason = DIFFERS if name in (digests or {}) else MISSING
        raise ValueError(f"{name}: {reason}")
