from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from experiments.data import cache as cache_module
from experiments.data.cache import Cache
from experiments.data.errors import DataError
from experiments.failures.failure import Failure

MAKE = """
import json, sys, time
from pathlib import Path
from experiments.data.cache import Cache

root, seconds = json.loads(sys.argv[1])

def make(folder):
    print("making", flush=True)
    for part in range(10):
        with (folder / "tokens").open("ab") as file:
            file.write(bytes([part]) * 1000)
        end = time.monotonic() + seconds / 10
        while time.monotonic() < end and not Path(root, "hurry").exists():
            time.sleep(0.01)
    return {"maker": sys.argv[1]}

folder, facts = Cache(Path(root), lambda message: print(message, flush=True)).obtain("packed", "key", make)
print("has", (folder / "tokens").read_bytes() == b"".join(bytes([part]) * 1000 for part in range(10)), flush=True)
"""


def content(text: str) -> Callable[[Path], dict[str, object]]:
    def make(folder: Path) -> dict[str, object]:
        (folder / "file").write_text(text)
        return {"text": text}

    return make


def never(folder: Path) -> dict[str, object]:
    raise AssertionError("made again")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", print)


def test_what_was_made_is_found_with_its_facts(cache: Cache) -> None:
    made = cache.obtain("kind", "key", content("first"))
    assert made == cache.obtain("kind", "key", never)
    assert made[1] == {"text": "first"}
    assert (made[0] / "file").read_text() == "first"
    assert cache.obtain("kind", "other", content("second"))[0] != made[0]


def test_the_contents_of_a_folder_have_a_digest(cache: Cache, tmp_path: Path) -> None:
    other = Cache(tmp_path / "other", print)
    assert cache.contents("kind/key") == {}
    for each, text in ((cache, "same"), (other, "same")):
        each.obtain("kind", "key", content(text))
    same = cache.contents("kind/key")
    assert same.keys() == {"kind/key"} and other.contents("kind/key") == same
    third = Cache(tmp_path / "third", print)
    third.obtain("kind", "key", content("samE"))
    assert third.contents("kind/key") != same


@pytest.mark.parametrize("damage", ["change", "cut", "remove", "manifest", "no manifest"])
def test_a_damaged_folder_is_made_again(cache: Cache, damage: str) -> None:
    folder, _ = cache.obtain("kind", "key", content("first"))
    file, manifest = folder / "file", folder / cache_module.MANIFEST
    match damage:
        case "change":
            file.write_text("fIrst")
        case "cut":
            file.write_text("firs")
        case "remove":
            file.unlink()
        case "manifest":
            manifest.write_text(manifest.read_text()[:-20])
        case "no manifest":
            manifest.unlink()
    assert cache.obtain("kind", "key", content("second"))[1] == {"text": "second"}
    assert cache.obtain("kind", "key", never)[1] == {"text": "second"}


def test_a_manifest_with_another_digit_or_of_another_folder_is_not_believed(cache: Cache) -> None:
    said: list[str] = []
    cache.say = said.append

    def make(folder: Path) -> dict[str, object]:
        (folder / "file").write_text("first")
        return {"token_count": 362}

    folder, facts = cache.obtain("kind", "key", make)
    other, _ = cache.obtain("kind", "other", make)
    manifest = folder / cache_module.MANIFEST
    manifest.write_text(manifest.read_text().replace("362", "1091"))
    assert cache.obtain("kind", "key", make) == (folder, facts)
    manifest.write_bytes((other / cache_module.MANIFEST).read_bytes())
    assert cache.obtain("kind", "key", make) == (folder, facts)
    assert [line.partition(": ")[2] for line in said] == [
        "damaged (manifest.json: it was changed: its digest differs); made again",
        "damaged (manifest.json: it is of kind/other); made again",
    ]


def test_every_flipped_bit_of_a_folder_is_seen(cache: Cache) -> None:
    folder, facts = cache.obtain("kind", "key", content("first"))
    source, reader = random.Random(0), Cache(cache.root, None)
    for path in (folder / "file", folder / cache_module.MANIFEST):
        whole = path.read_bytes()
        for _ in range(25):
            changed = bytearray(whole)
            changed[source.randrange(len(whole))] ^= 1 << source.randrange(8)
            path.write_bytes(changed)
            try:
                assert reader.obtain("kind", "key", never)[1] == facts and path.name == cache_module.MANIFEST
            except cache_module.MissingError:
                continue
        path.write_bytes(whole)
    assert reader.obtain("kind", "key", never)[1] == facts


def test_a_damaged_folder_stays_where_it_cannot_be_made_again(cache: Cache) -> None:
    folder, _ = cache.obtain("kind", "key", content("first"))
    (folder / "file").write_text("fIrst")

    def fails(folder: Path) -> dict[str, object]:
        raise DataError("no network")

    with pytest.raises(DataError, match="no network"):
        cache.obtain("kind", "key", fails)
    assert (folder / "file").read_text() == "fIrst"


def test_a_note_that_was_changed_is_forgotten(cache: Cache) -> None:
    cache.remember(["a"], "value")
    assert cache.recall(["a"]) == "value"
    (note,) = (cache.root / "notes").iterdir()
    note.write_text(note.read_text().replace('value"}', 'valve"}').replace("value", "valve"))
    assert cache.recall(["a"]) is None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_said(cache: Cache, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DataError, match=r"has no file locks .*; choose another cache: cache=FOLDER"):
        cache.obtain("kind", "key", never)


def test_the_digest_of_a_big_file_is_remembered_until_it_changes(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "REMEMBERED", 1)
    path = tmp_path / "big"
    path.write_text("one")
    first = cache.file_digest(path)
    assert cache.file_digest(path, contents=lambda path: never(path)) == first
    status = path.stat()
    time.sleep(0.02)
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cache.file_digest(path) != first


def test_a_failure_leaves_nothing_behind(cache: Cache) -> None:
    def fails(folder: Path) -> dict[str, object]:
        (folder / "file").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.obtain("kind", "key", fails)
    assert [path.suffix for path in (cache.root / "kind").iterdir()] == [".lock"]
    assert cache.obtain("kind", "key", content("whole"))[1] == {"text": "whole"}


def test_two_processes_make_it_once_and_the_second_says_that_it_waits(python, tmp_path: Path) -> None:
    first = python(MAKE, [str(tmp_path), 600])
    assert first.stdout.readline() == "making\n"
    second = python(MAKE, [str(tmp_path), 600])
    assert "waiting for another process" in second.stdout.readline()
    (tmp_path / "hurry").touch()
    assert [each.communicate(timeout=120)[0] for each in (first, second)] == ["has True\n", "has True\n"]


def test_a_kill_at_any_instant_leaves_nothing_half_written(python, tmp_path: Path) -> None:
    source = random.Random(0)
    for attempt in range(4):
        root = tmp_path / str(attempt)
        process = python(MAKE, [str(root), 0.3])
        assert process.stdout.readline() == "making\n"
        time.sleep(source.uniform(0, 0.35))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)
        folder = root / "packed" / "key"
        assert not folder.exists() or (folder / cache_module.MANIFEST).exists()
        process = python(MAKE, [str(root), 0])
        assert process.communicate(timeout=120)[0].endswith("has True\n")
        assert not list((root / "packed").glob("*.partial*"))


def test_leftovers_of_the_killed_are_removed_and_work_of_the_living_is_not(python, cache: Cache) -> None:
    living = python(MAKE, [str(cache.root), 600])
    assert living.stdout.readline() == "making\n"
    dead = cache.root / "tokenizers" / ".dead.0.partial"
    dead.mkdir(parents=True)
    dead.with_name(f"{dead.name}.lock").touch()
    cache.obtain("packed", "other", content("x"))
    assert not [*dead.parent.iterdir()]
    (cache.root / "hurry").touch()
    assert living.communicate(timeout=120)[0] == "has True\n"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="stands where a folder should be; remove it, or choose another cache: "):
        Cache(tmp_path / "file", print).obtain("kind", "key", content("x"))


@pytest.mark.parametrize("name", ["", "key", "key/manifest.json", "key/file"])
@pytest.mark.parametrize("may_make", [False, True])
def test_what_may_not_be_read_is_named_with_the_remedy_and_stays(
    monkeypatch: pytest.MonkeyPatch, name: str, may_make: bool
) -> None:
    # so that the digest of the file is known without opening it
    monkeypatch.setattr(cache_module, "REMEMBERED", 1)
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as root:
        if user == 0:
            # permissions don't bind root
            Path(root).chmod(0o777)
            os.seteuid(65534)
        forbidden = Path(root, "kind", name)
        try:
            Cache(Path(root), print).obtain("kind", "key", content("first"))
            cache = Cache(Path(root), print if may_make else None)
            mode = forbidden.stat().st_mode
            forbidden.chmod(0)
            with pytest.raises(DataError, match=rf"{forbidden}\S* cannot be read: Permission denied\n.* ATTN_CACHE"):
                cache.obtain("kind", "key", never)
            forbidden.chmod(mode)
            assert cache.obtain("kind", "key", never)[1] == {"text": "first"}
        finally:
            os.seteuid(user)


def test_threads_that_cannot_be_started_are_not_the_fault_of_the_cache(cache: Cache) -> None:
    def make(folder: Path) -> dict[str, object]:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with pytest.raises(Failure, match="ulimit -u") as caught:
        cache.obtain("packed", "key", make)
    assert "cache=" not in str(caught.value) and not any(path.is_dir() for path in cache.root.glob("packed/key*"))


def test_an_error_of_a_file_that_is_read_is_not_the_fault_of_the_cache(cache: Cache) -> None:
    text = cache.root.parent / "book.txt"

    def make(folder: Path, file: str | Path) -> dict[str, object]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder / file))

    with pytest.raises(DataError, match=rf"^{text}: Input/output error$"):
        cache.obtain("packed", "key", partial(make, file=text))
    with pytest.raises(DataError, match=r"packed/key: Input/output error; choose another cache"):
        cache.obtain("packed", "key", partial(make, file="train"))


def test_a_full_disk_is_said_and_leaves_nothing(python, tmp_path: Path) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n" + MAKE
    process = python(limited, [str(tmp_path), 0])
    error = process.communicate(timeout=120)[1]
    assert "packed/key: the file would be larger than this process may write" in error
    assert "or choose another cache: cache=FOLDER, or ATTN_CACHE in the environment" in error
    assert process.returncode == 1
    assert not (tmp_path / "packed" / "key").exists()
    assert not list((tmp_path / "packed").glob("*.partial*"))
