from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.record.durable import (
    RunFolderError,
    disk_errors_as_failures,
    folder_for,
    new_folder,
    number,
    replacing,
    to_json,
    write,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet="xyz"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="abc"), inner),
    max_leaves=8,
)


@given(values)
def test_json_is_standard_and_keeps_every_value(value):
    def refuse(token):
        raise AssertionError(f"{token} is no standard JSON")

    def back(item):
        if isinstance(item, dict):
            return {key: back(inner) for key, inner in item.items()}
        return [back(inner) for inner in item] if isinstance(item, list) else number(item)

    assert repr(back(json.loads(to_json(value), parse_constant=refuse))) == repr(value)


def test_non_finite_numbers_are_strings():
    assert to_json([math.nan, math.inf, -math.inf, 1.5]) == '["nan", "inf", "-inf", 1.5]'


def test_a_failed_replacement_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    write(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half of the ne")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_not_replaced(tmp_path):
    """Whoever may write everywhere would otherwise lose /dev/null."""
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(RunFolderError, match="pipe: it is not a regular file"):
        write(path, "new")
    assert path.is_fifo() and [*tmp_path.iterdir()] == [path]


def test_a_replacement_is_not_seen_before_it_is_whole(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"


@pytest.fixture
def synchronized(monkeypatch):
    """The paths in the order in which they were synchronized to the disk."""
    paths = []
    fsync = os.fsync

    def note(descriptor):
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return paths


def test_a_new_folder_and_those_above_it_are_on_the_disk_before_what_is_in_them(tmp_path, synchronized):
    folder_for(tmp_path / "a" / "b")
    assert synchronized == [str(tmp_path), str(tmp_path / "a")]


def test_a_folder_is_on_the_disk_with_its_files_before_it_has_its_name(tmp_path, synchronized):
    with new_folder(tmp_path / "new") as partial:
        (partial / "inner").mkdir()
        (partial / "inner" / "file").write_text("x")
        synchronized.clear()
    inside = [str(partial / "inner"), str(partial / "inner" / "file"), str(partial)]
    assert sorted(synchronized[:-1]) == sorted(inside) and synchronized[-1] == str(tmp_path)


def test_what_a_killed_process_left_of_a_new_folder_is_removed_and_what_a_living_one_fills_is_not(tmp_path):
    left = tmp_path / ".new.abc.partial"
    left.mkdir()
    (left / "half").write_text("h")
    with new_folder(tmp_path / "new") as filled:
        assert not left.exists()
        with pytest.raises(RunFolderError, match="another process has made this folder"), new_folder(tmp_path / "new"):
            assert filled.exists()
            (tmp_path / "new" / "theirs").mkdir(parents=True)
        (tmp_path / "new" / "theirs").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.ENOTDIR, "a file stands where a folder should be"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_disk_errors_are_one_line_with_path_and_reason(tmp_path, number, said):
    with pytest.raises(RunFolderError, match=said) as caught, disk_errors_as_failures(tmp_path):
        raise OSError(number, "Input/output error")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
