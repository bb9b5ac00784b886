from __future__ import annotations

import errno
import fcntl
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.failures.exit_code import ExitCode
from experiments.failures.failure import Failure, Mistake, OutOfMemory
from experiments.files import durable
from experiments.files.durable import (
    DiskError,
    check_writable,
    disk_errors,
    folder_for,
    new_folder,
    number,
    or_elsewhere,
    remove_abandoned,
    replacing,
    swept,
    to_json,
    write,
)
from tests.fixtures.permissions import as_another_user

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


def test_of_two_processes_that_write_one_file_each_writes_it_whole(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as temporary:
        temporary.write_text("first")
        write(path, "second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and [*tmp_path.iterdir()] == [path]


def test_what_a_killed_process_left_of_a_file_is_removed(tmp_path):
    left = tmp_path / ".file.abc.partial"
    left.write_text("ha")
    (tmp_path / ".file.abc.partial.lock").touch()
    write(path := tmp_path / "file", "new")
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_stays_one_and_the_file_that_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (target := tmp_path / "elsewhere" / "file").write_text("old")
    (link := tmp_path / "link").symlink_to(Path("elsewhere") / "file")
    write(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and [*target.parent.iterdir()] == [target]


def test_a_device_is_not_replaced(tmp_path):
    """Whoever may write everywhere would otherwise lose /dev/null."""
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(DiskError, match="pipe: it is not a regular file"):
        write(path, "new")
    assert path.is_fifo() and [*tmp_path.iterdir()] == [path]


def test_a_replacement_is_not_seen_before_it_is_whole(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_is_then(tmp_path, synchronized):
    with replacing(path := tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert synchronized == [str(temporary), str(path.parent)]


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


def test_a_link_to_an_empty_folder_stays_one(tmp_path):
    (tmp_path / "empty").mkdir()
    (link := tmp_path / "link").symlink_to("empty")
    with new_folder(link) as partial:
        (partial / "file").touch()
    assert link.is_symlink() and (tmp_path / "empty" / "file").exists()


def test_a_hidden_entry_that_cannot_be_removed_is_no_reason_to_fail(tmp_path):
    (tmp_path / ".left").touch()
    (theirs := tmp_path / ".ipynb_checkpoints").mkdir()
    assert [*swept(tmp_path).iterdir()] == [theirs]


def leave(folder, name):
    """Leave what a killed process leaves that fills a new folder."""
    left = folder / f".{name}.abc.partial"
    left.mkdir()
    (left / "half").write_text("h")
    (folder / f".{name}.abc.partial.lock").touch()
    return left


def test_what_a_killed_process_left_of_a_new_folder_is_removed_and_what_a_living_one_fills_is_not(tmp_path):
    left = leave(tmp_path, "new")
    with new_folder(tmp_path / "new") as filled:
        assert not left.exists()
        with pytest.raises(DiskError, match="another process has made this folder"), new_folder(tmp_path / "new"):
            assert filled.exists()
            (tmp_path / "new" / "theirs").mkdir(parents=True)
        (tmp_path / "new" / "theirs").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_what_was_left_of_other_folders_is_removed_on_request(tmp_path):
    left = leave(tmp_path, "other")
    (lone := tmp_path / ".another.abc.partial.lock").touch()
    with new_folder(tmp_path / "new") as filled:
        assert left.exists() and lone.exists()
        remove_abandoned(tmp_path)
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == [filled] and not lone.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_lock_that_is_removed_before_it_is_taken_is_made_again(tmp_path, monkeypatch):
    take, before = durable.take_lock, iter([lambda: remove_abandoned(tmp_path)])

    def late(*arguments, **options):
        next(before, lambda: None)()
        return take(*arguments, **options)

    monkeypatch.setattr(durable, "take_lock", late)
    with new_folder(tmp_path / "new") as filled:
        remove_abandoned(tmp_path)
        assert filled.exists()
    assert next(before, None) is None and [path.name for path in tmp_path.iterdir()] == ["new"]


def test_without_locks_a_new_folder_is_made_and_what_may_be_anothers_stays(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    left = leave(tmp_path, "new")
    with new_folder(tmp_path / "new"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"new", left.name, f"{left.name}.lock"}


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_is_replaced_stays_until_the_new_folder_is_complete(tmp_path, is_folder):
    old = tmp_path / "name"
    if is_folder:
        old.mkdir()
        (old / "old").touch()
    else:
        old.write_text("old")
    with pytest.raises(ZeroDivisionError), new_folder(old, replace=True):
        raise ZeroDivisionError
    assert (old / "old").exists() if is_folder else old.read_text() == "old"
    with new_folder(old, replace=True) as partial:
        (partial / "new").touch()
        assert not (old / "new").exists()
    assert [path.name for path in old.iterdir()] == ["new"]
    assert [*tmp_path.iterdir()] == [old]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full; free some space and give the same command again, or ask a friend"),
        (errno.EDQUOT, "the disk quota is used up; free some space and give the same command again, or ask a friend"),
        (errno.EROFS, "the file system is read-only; ask a friend"),
        (errno.EACCES, "permission denied; ask a friend"),
        (errno.ENOTDIR, "a file stands where a folder should be; remove it, or ask a friend"),
        (errno.EIO, "words of the system; ask a friend"),
        (errno.ENOENT, "words of the system"),
        (errno.ENOTEMPTY, "another process has made this folder in the meantime"),
    ],
)
def test_disk_errors_are_one_line_with_path_reason_and_the_remedies_there_and_elsewhere(tmp_path, number, said):
    with pytest.raises(Failure) as caught, or_elsewhere("ask a friend"), disk_errors(tmp_path):
        raise OSError(number, "words of the system")
    assert str(caught.value) == f"{tmp_path}: {said}"


def test_a_place_that_cannot_be_written_is_refused_in_advance(open_folder):
    (open_folder / "closed").mkdir(0o555)
    with as_another_user(), pytest.raises(DiskError, match=r"closed/new/file: permission denied$"):
        check_writable(open_folder / "closed" / "new" / "file")
    check_writable(open_folder / "new" / "file")
    assert [path.name for path in open_folder.rglob("*")] == ["closed"]


def test_a_place_below_a_file_or_a_link_to_nothing_is_refused_in_advance(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    for place in ("file/new", "file/new/deep"):
        with pytest.raises(DiskError, match=rf"{place}: a file stands where a folder should be; remove it$"):
            check_writable(tmp_path / place)
    with pytest.raises(DiskError, match=r"link/new: No such file or directory$"):
        check_writable(tmp_path / "link" / "new")
    # a file at the place itself is replaced
    check_writable(tmp_path / "file")


def test_without_another_place_there_is_the_remedy_at_this_one(tmp_path):
    with pytest.raises(DiskError) as caught, disk_errors(tmp_path):
        raise OSError(errno.EISDIR, "words of the system")
    assert str(caught.value) == f"{tmp_path}: a folder stands where a file should be; remove it"
    with pytest.raises(DiskError, match=r"read-only$"), disk_errors(tmp_path):
        raise OSError(errno.EROFS, "words of the system")


def test_the_innermost_block_chooses_the_other_place_and_the_kind_of_failure(tmp_path):
    outer, inner = or_elsewhere("ask a friend"), or_elsewhere("ask a foe", Mistake)
    with pytest.raises(Mistake, match=r"read-only; ask a foe$"), outer, inner, disk_errors(tmp_path):
        raise OSError(errno.EROFS, "words of the system")


def test_what_the_process_lacks_is_not_the_fault_of_the_disk(tmp_path):
    with pytest.raises(OutOfMemory) as caught, or_elsewhere("ask a friend"), new_folder(tmp_path / "new"):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    assert caught.value.exit_code == ExitCode.OUT_OF_MEMORY and str(tmp_path) not in str(caught.value)
    assert not [*tmp_path.iterdir()]
