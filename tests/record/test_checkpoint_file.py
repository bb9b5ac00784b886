from __future__ import annotations

import errno

import pytest
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
