from __future__ import annotations

import errno

import pytest
import torch
from safetensors import SafetensorError

from experiments.record import checkpoint_file


def test_an_error_of_the_disk_is_one_of_the_system_with_the_path(monkeypatch, tmp_path):
    """So every command that writes tensors, an export for example, says in a line that the disk is full."""

    def full(*arguments):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint_file, "save_file", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        checkpoint_file.write_tensors({}, tmp_path / "model.safetensors")
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(tmp_path / "model.safetensors")


def test_whoever_may_read_the_other_files_of_a_folder_may_read_its_tensors(tmp_path):
    (tmp_path / "config.json").touch()
    checkpoint_file.write_tensors({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "config.json").stat().st_mode


def test_what_a_killed_process_did_not_remove_is_removed(tmp_path):
    names = [f"step-{step:09d}" for step in (1, 2, 3, 4, 5)]
    for name in names:
        (tmp_path / f"{name}.safetensors").touch()
        (tmp_path / f"{name}.sha256").touch()
    # killed between the two files of a checkpoint, and before it removed the second; the fifth is damaged
    (tmp_path / f"{names[0]}.safetensors").unlink()
    (tmp_path / "best-000000001.sha256").touch()
    checkpoint_file.remove_outdated(tmp_path / f"{names[3]}.safetensors", "newest")
    kept = {f"{name}.{suffix}" for name in names[2:] for suffix in ("safetensors", "sha256")}
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "best-000000001.sha256"}
