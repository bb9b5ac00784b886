"""How the compiled kernel's library is built once and kept, and what a build leaves that fails or is interrupted."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from attention.kernels.building import kernel_cache
from attention.kernels.building.interruptions import INTERRUPTING
from attention.kernels.compiled import kernel, library
from attention.kernels.problem import Projection
from attention.layers.attend import attend


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An empty cache, in a process that has not loaded the kernel; a build takes no time here."""
    sources = tmp_path / "sources"
    sources.mkdir()
    code = 'extern "C" long workspace_bytes() { return 0; }\nextern "C" void attend() {}\n'
    (sources / "attend.cpp").write_text(code)
    monkeypatch.setattr(library, "SOURCES", sources)
    # the cache is the former one again afterwards
    monkeypatch.setattr(kernel_cache, "_folder", tmp_path / "nowhere")
    monkeypatch.setattr(kernel_cache, "_report", None)
    # the library that this process has loaded is there again afterwards
    monkeypatch.setattr(library, "loaded", functools.cache(library.loaded.__wrapped__))
    library.build_in(tmp_path / "cache")
    return tmp_path / "cache"


def test_it_is_built_once_and_leaves_nothing_else_behind(elsewhere):
    handlers = [signal.getsignal(number) for number in INTERRUPTING]
    built = library._build()
    assert [signal.getsignal(number) for number in INTERRUPTING] == handlers
    made = built.stat().st_mtime_ns
    assert library._build() == built and built.stat().st_mtime_ns == made
    assert sorted(elsewhere.rglob("*")) == [built.parent, built, built.parent / "lock"]
    assert stat.S_IMODE(built.stat().st_mode) == 0o500 and stat.S_IMODE(built.parent.stat().st_mode) == 0o700


def test_another_source_compiler_or_flag_is_another_library(elsewhere, monkeypatch):
    made = {library._build()}
    (library.SOURCES / "another.h").write_text("// changed\n")
    made.add(library._build())
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-DATTENTION_OTHER"))
    made.add(library._build())
    monkeypatch.setattr(torch, "__version__", "0.0")
    made.add(library._build())
    assert len(made) == 4 and all(path.is_file() for path in made)


def another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process seem to run as another user than the file's owner."""
    lstat = Path.lstat

    def found(each: Path) -> SimpleNamespace:
        return SimpleNamespace(st_mode=lstat(each).st_mode, st_uid=lstat(each).st_uid + (each == path))

    monkeypatch.setattr(Path, "lstat", found)


def writable_by_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(path.stat().st_mode | stat.S_IWGRP)


def a_link(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("change", [another_user, writable_by_others, a_link])
@pytest.mark.parametrize("which", ["library", "folder"])
def test_what_another_user_may_have_put_there_is_not_loaded(elsewhere, monkeypatch, change, which):
    built = library._build()
    loaded: list[str] = []
    monkeypatch.setattr(library.ctypes, "CDLL", loaded.append)
    path = built if which == "library" else built.parent
    change(path, monkeypatch)
    assert library.loaded().functions is None and f"{path} is a link, another user's" in str(kernel.absence())
    query, told = torch.randn(1, 3, 2, 4), []
    attend(query, query, query, logits_projection=Projection(torch.eye(2)), report=told.append)
    assert told == ["blocked"] and not loaded


@pytest.mark.campaign
def test_processes_that_build_at_once_build_it_once(elsewhere, monkeypatch, tmp_path):
    log = tmp_path / "log"
    counting = tmp_path / "counting-g++"
    counting.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) echo >> {log}; sleep 1;; esac\nexec g++ "$@"\n')
    counting.chmod(0o700)
    monkeypatch.setenv("CXX", str(counting))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        paths = pool.map(_built, 3 * [(library.SOURCES, elsewhere)])
    assert len(set(paths)) == 1 and kernel.absence() is None and log.read_text() == "\n"


def test_what_a_killed_build_has_left_is_removed_by_the_next(elsewhere):
    path = library._build()
    path.unlink()
    (path.parent / "building-abc").mkdir()
    (path.parent / "building-abc" / "half.so").write_bytes(b"half")
    assert library._build() == path and sorted(path.parent.iterdir()) == [path, path.parent / "lock"]


def test_a_compiler_that_outlives_its_build_leaves_nothing_behind(elsewhere, monkeypatch):
    path = library._build()
    path.unlink()
    scratch = path.parent / "building-abc"
    scratch.mkdir()
    (scratch / "library.so").write_bytes(b"half")
    remove = os.unlink

    def remove_and_be_late(name: str, *, dir_fd: int | None = None) -> None:
        remove(name, dir_fd=dir_fd)
        if scratch.exists():
            (scratch / "library.so").write_bytes(b"written after the removal")

    monkeypatch.setattr(os, "unlink", remove_and_be_late)
    assert library._build() == path and sorted(path.parent.iterdir()) == [path, path.parent / "lock"]


def test_a_build_that_is_killed_when_its_file_has_its_name_has_nothing_left_to_remove(elsewhere, monkeypatch):
    class Killed(BaseException):
        pass

    replace = Path.replace

    def killed_after(self: Path, target: Path) -> None:
        replace(self, target)
        assert sorted(target.parent.iterdir()) == [target, target.parent / "lock"]
        raise Killed

    monkeypatch.setattr(Path, "replace", killed_after)
    with pytest.raises(Killed):
        library._build()


def test_a_compiler_is_stopped_by_the_processor_time_it_takes_and_not_by_the_clock(elsewhere, monkeypatch, tmp_path):
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nwhile :; do :; done\n")
    endless.chmod(0o700)
    monkeypatch.setattr(library, "COMPILE_SECONDS", 1)
    monkeypatch.setenv("CXX", str(endless))
    assert f"{endless} was ended by SIGXCPU" in str(kernel.absence())
    monkeypatch.setattr(library, "WAIT_SECONDS", 0.05)
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    library.loaded.cache_clear()
    assert f"{endless} has not ended after 0.05 seconds" in str(kernel.absence())


@pytest.mark.parametrize("when", ["while it starts", "while it is awaited"])
def test_an_interrupted_build_leaves_no_process_and_no_file(elsewhere, monkeypatch, tmp_path, when):
    interrupt = "kill -INT $PPID"
    if when == "while it starts":
        interrupt = ":"

        class Interrupted(subprocess.Popen):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                if "-dM" not in args[0]:
                    while not (tmp_path / "started").exists():
                        time.sleep(0.01)
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(library.subprocess, "Popen", Interrupted)
    monkeypatch.setenv("CXX", _interrupting_compiler(tmp_path, interrupt))
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    with pytest.raises(KeyboardInterrupt):
        library._build()
    _check_nothing_is_left(elsewhere, tmp_path)


@pytest.mark.parametrize("signals", [["TERM"], ["HUP"], ["INT", "TERM"], ["TERM", "TERM"]])
def test_a_signal_without_a_handler_takes_effect_after_the_files_of_the_build_are_gone(
    elsewhere, monkeypatch, tmp_path, signals
):
    # it receives them together, because it would end the compiler before the second one is sent
    interrupts = "; ".join(f"kill -{name} $PPID" for name in ["STOP", *signals, "CONT"])
    monkeypatch.setenv("CXX", _interrupting_compiler(tmp_path, interrupts))
    builder = multiprocessing.get_context("spawn").Process(target=_built, args=((library.SOURCES, elsewhere),))
    builder.start()
    builder.join(60)
    assert builder.exitcode == -signal.Signals[f"SIG{signals[-1]}"]
    _check_nothing_is_left(elsewhere, tmp_path)


def _interrupting_compiler(folder: Path, interrupt: str) -> str:
    """A compiler that has another process write into TMPDIR, as g++ does, and interrupts whoever started it."""
    compiler = folder / "compiler"
    starts = f'sleep 60 & echo $! > {folder}/pid; touch "$TMPDIR/half.s" {folder}/started; {interrupt}; wait'
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) ;; *) {starts};; esac\n')
    compiler.chmod(0o700)
    return str(compiler)


def _check_nothing_is_left(cache: Path, folder: Path) -> None:
    """Check that neither files of the build nor the process of `_interrupting_compiler` have stayed."""
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["lock"]
    status = Path("/proc") / (folder / "pid").read_text().strip() / "status"

    def is_dead() -> bool:
        """Whether the process has ended; its new parent may not have waited for it yet."""
        try:
            return "State:\tZ" in status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    deadline = time.monotonic() + 30
    while not is_dead():
        assert time.monotonic() < deadline, "it was not killed"
        time.sleep(0.01)


def _built(folders: tuple[Path, Path]) -> str:
    library.SOURCES, cache = folders
    library.build_in(cache)
    return str(library._build())


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("/nowhere/g++", "there is no program /nowhere/g.."),
        ("false", "false ended with code 1"),
        ("", "no C.. compiler"),
    ],
)
def test_without_a_compiler_auto_quietly_computes_in_blocks(elsewhere, monkeypatch, capfd, recwarn, compiler, why):
    monkeypatch.setenv("PATH", os.environ["PATH"] if compiler else str(elsewhere))
    monkeypatch.setenv("CXX", compiler)
    query, eye = torch.randn(1, 3, 2, 4), Projection(torch.eye(2))
    told: list[str] = []
    output = attend(query, query, query, logits_projection=eye, report=told.append)
    assert told == ["blocked"] and capfd.readouterr() == ("", "") and not recwarn.list
    torch.testing.assert_close(output, attend(query, query, query, backend="reference"))
    with pytest.raises(ValueError, match=f"compiled can't do this: it can't be built here: .*{why}"):
        attend(query, query, query, backend="compiled")


def test_a_library_that_was_cut_short_is_built_again(elsewhere):
    path = library._build()
    whole = path.read_bytes()
    path.chmod(0o700)
    path.write_bytes(whole[:1000])
    assert library._build() == path and path.stat().st_size == len(whole)
    assert kernel.absence() is None


def test_the_folder_is_the_callers_and_a_loaded_library_stays(elsewhere, monkeypatch):
    another, said = elsewhere.with_name("another"), list[str]()
    monkeypatch.setenv("ATTN_CACHE", str(elsewhere.with_name("environment")))
    monkeypatch.setenv("CXX", "false")
    assert "false ended with code 1" in str(kernel.absence())
    monkeypatch.delenv("CXX")
    library.build_in(another, said.append)
    assert kernel.absence() is None and len(said) == 2
    assert said[0].startswith("building the attention kernel with ") and said[1].startswith("the kernel was built in ")
    assert list(another.rglob("*.so")) and not elsewhere.exists()
    loaded = library.loaded()
    library.build_in(elsewhere)
    assert library.loaded() is loaded
