"""The files of checkpoints in a run folder: their names, their order, and the checksums beside them."""

from __future__ import annotations

from pathlib import Path

from experiments.files.disk import files_named, read_bytes
from experiments.record.errors import disk_errors_as_failures
from experiments.settings.group import WhichCheckpoint

PREFIX: dict[WhichCheckpoint, str] = {"best": "best", "newest": "step"}  # of the name of a checkpoint's file


def checkpoint_path(folder: Path, which: WhichCheckpoint, step: int) -> Path:
    """The file of a checkpoint."""
    return folder / f"{PREFIX[which]}-{step:09d}.safetensors"


def checkpoint_paths(folder: Path, which: WhichCheckpoint) -> list[Path]:
    """The files of the checkpoints of a kind, newest first. Raises RunFolderError."""
    with disk_errors_as_failures(folder):
        return files_named(folder, f"{PREFIX[which]}-*.safetensors")[::-1]


def step_of(checkpoint: Path) -> int:
    """The step of a checkpoint, by the name of its file."""
    return int(checkpoint.stem.partition("-")[2])


def checksum_path(checkpoint: Path) -> Path:
    """The file beside a checkpoint that holds its checksum."""
    return checkpoint.with_suffix(".sha256")


def checksums(checkpoint: Path) -> list[str]:
    """The hex SHA-256 in the file beside a checkpoint, of which there are several while another one takes its place.

    Raises OSError, ValueError.
    """
    return read_bytes(checksum_path(checkpoint)).decode("ascii").split()


def lone_checksums(folder: Path, which: WhichCheckpoint) -> list[Path]:
    """The checksums that a killed process left without their checkpoints."""
    checksums = folder.glob(f"{PREFIX[which]}-*.sha256")
    return [path for path in checksums if not path.with_suffix(".safetensors").exists()]
