"""Files on the disk: what cannot be read is named."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from experiments.commands.frame.ending import message_and_exit_code
from experiments.failures.exit_code import ExitCode
from experiments.files.disk import open_regular, read_bytes

# at its first address, where nothing is
UNREADABLE = Path("/proc/self/mem")


@pytest.mark.skipif(not UNREADABLE.exists(), reason="there is no /proc")
@pytest.mark.parametrize("size", [-1, 9])
def test_an_error_of_the_disk_has_the_path_of_the_file(size: int) -> None:
    with pytest.raises(OSError) as caught, open_regular(UNREADABLE) as file:
        file.read(size)
    assert message_and_exit_code(caught.value) == (f"{UNREADABLE}: {os.strerror(errno.EIO)}", ExitCode.FAILED)


def test_what_can_be_read_is_read_whole(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "file").write_bytes(content)
    assert read_bytes(tmp_path / "file") == content
    with open_regular(tmp_path / "file") as file:
        assert [*iter(lambda: file.read(1 << 20), b"")] == [
            content[at : at + (1 << 20)] for at in (0, 1 << 20, 2 << 20)
        ]
