"""The index of run folders: a file is read once, and again only when it has changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import dataclass

import pytest

from experiments.record.result import Result
from experiments.results.index import INDEX_FILE, Index


@pytest.fixture
def parsed():
    """A parser that remembers what it was given."""

    def parse(content: bytes) -> dict[str, int]:
        parse.calls.append(content)
        return {"length": len(content)}

    parse.calls = []
    return parse


def test_a_file_is_parsed_once_and_again_when_it_has_changed(tmp_path, parsed):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    for _ in range(3):
        with Index(tmp_path) as index:
            assert index.read(path, parsed) == {"length": 3}
    assert parsed.calls == [b"one"]
    path.write_bytes(b"three")
    with Index(tmp_path) as index:
        assert index.read(path, parsed) == index.read(path, parsed) == {"length": 5}
    assert parsed.calls == [b"one", b"three"]


def test_a_change_of_the_same_size_is_seen_by_its_time(tmp_path, parsed):
    path = tmp_path / "a"
    with Index(tmp_path) as index:
        for seconds in (1, 2):
            path.write_bytes(b"one")
            os.utime(path, (seconds, seconds))
            index.read(path, parsed)
    assert len(parsed.calls) == 2


def test_a_change_of_a_file_that_is_read_beside_it_is_seen(tmp_path, parsed):
    path, beside = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"one")
    with Index(tmp_path) as index:
        for calls, content in enumerate((b"two", b"three"), 2):
            index.read(path, parsed, ["b"])
            beside.write_bytes(content)
            index.read(path, parsed, ["b"])
            index.read(path, parsed, ["b"])
            assert len(parsed.calls) == calls


def test_a_folder_of_runs_that_was_moved_keeps_its_index(tmp_path, parsed):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "file").write_bytes(b"one")
    with Index(tmp_path / "runs") as index:
        index.read(tmp_path / "runs" / "a" / "file", parsed)
    (tmp_path / "runs").rename(tmp_path / "moved")
    with Index(tmp_path / "moved") as index:
        assert index.read(tmp_path / "moved" / "a" / "file", parsed) == {"length": 3}
    assert len(parsed.calls) == 1


def test_the_entries_of_removed_runs_are_forgotten_when_the_folder_is_listed(tmp_path, parsed):
    (other := tmp_path / "other").write_bytes(b"other")
    for name in "abc":
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "file").write_bytes(b"one")
    with Index(tmp_path / "runs") as index:
        for path in [other, *tmp_path.glob("runs/*/file")]:
            index.read(path, parsed)
    shutil.rmtree(tmp_path / "runs" / "b")
    for known in (["a/file", "b/file", "c/file", str(other)], ["a/file", "c/file", str(other)]):
        with sqlite3.connect(tmp_path / "runs" / INDEX_FILE) as database:
            paths = [path for (path,) in database.execute("SELECT path FROM files")]
        assert sorted(paths) == sorted(known)
        with Index(tmp_path / "runs") as index:
            index.folders()


def test_a_folder_without_runs_gets_no_index(tmp_path, parsed):
    with Index(tmp_path) as index:
        assert index.folders() == [] and index.read(tmp_path / "absent", parsed) is None
    assert not list(tmp_path.iterdir())


def test_an_index_of_results_with_other_fields_is_rebuilt(tmp_path, parsed, monkeypatch):
    @dataclass
    class Earlier:
        loss: float

    (tmp_path / "a").write_bytes(b"one")
    for result, calls in ((Result, 1), (Earlier, 2), (Earlier, 2)):
        monkeypatch.setattr("experiments.results.index.Result", result)
        with Index(tmp_path) as index:
            index.read(tmp_path / "a", parsed)
        assert len(parsed.calls) == calls


def test_a_file_that_is_not_there_is_none_and_a_damaged_one_raises(tmp_path, parsed):
    (tmp_path / "damaged").write_bytes(b"{")

    def refuse(content: bytes) -> None:
        raise ValueError("damaged")

    with Index(tmp_path) as index:
        assert index.read(tmp_path / "absent", parsed) is None
        with pytest.raises(ValueError, match="damaged"):
            index.read(tmp_path / "damaged", refuse)
        assert index.read(tmp_path / "damaged", parsed) == {"length": 1}


@pytest.mark.parametrize("spoil", ["no such folder", "no database", "another version"])
def test_an_index_that_is_of_no_use_is_done_without(tmp_path, parsed, spoil):
    path, runs = tmp_path / "a", tmp_path / "runs"
    path.write_bytes(b"one")
    if spoil != "no such folder":
        runs.mkdir()
    if spoil == "no database":
        (runs / INDEX_FILE).write_text("this is text, and long enough to be no database" * 100)
    if spoil == "another version":
        with Index(runs) as index:
            index.read(path, len)
        with sqlite3.connect(runs / INDEX_FILE) as database:
            database.execute("PRAGMA user_version = 99")
    with Index(runs) as index:
        assert index.read(path, parsed) == index.read(path, parsed) == {"length": 3}
    assert parsed.calls == [b"one"]


def test_an_index_that_another_process_locks_meanwhile_is_done_without(tmp_path, parsed, monkeypatch):
    monkeypatch.setattr("experiments.results.index.WAIT_SECONDS", 0.01)
    path = tmp_path / "a"
    path.write_bytes(b"one")
    with Index(tmp_path) as index:
        index.read(path, parsed)
    with Index(tmp_path) as index:
        other = sqlite3.connect(tmp_path / INDEX_FILE)
        other.execute("BEGIN EXCLUSIVE")
        assert index.read(path, parsed) == index.read(path, parsed) == {"length": 3}
        other.close()
    assert len(parsed.calls) == 2
