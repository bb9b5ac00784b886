"""How the CUDA programs are compiled once and kept, with a stand-in for NVRTC."""

from __future__ import annotations

import shutil
import stat
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from attention.kernels.building import kernel_cache
from attention.kernels.cuda import library
from tests.attention.kernels.compiled.test_library import a_link, another_user, writable_by_others

PROBLEM = ("mixed.cu", (("HEADS", 2), ("KEY_SIZE", 8)), (9, 0))


class Nvrtc:
    """Stands in for NVRTC: what it makes tells what it is made from."""

    def __init__(self) -> None:
        self.compilations, self.seconds, self.version, self.complaint = 0, 0.0, (13, 0), ""

    def compile_programs(self, source: str, constants: library.Constants, capability: tuple[int, int]) -> bytes:
        """Compile a file of the folder, or complain."""
        self.compilations += 1
        time.sleep(self.seconds)
        if self.complaint:
            raise RuntimeError(self.complaint)
        return repr((source, constants, capability)).encode()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_cache, "_folder", tmp_path / "cache")
    monkeypatch.setattr(kernel_cache, "_report", None)
    return tmp_path / "cache"


@pytest.fixture
def nvrtc(monkeypatch, cache):
    nvrtc = Nvrtc()
    monkeypatch.setattr(library, "compile_programs", nvrtc.compile_programs)
    monkeypatch.setattr(library, "compiler_version", lambda: nvrtc.version)
    return nvrtc


def test_programs_are_compiled_once_and_nothing_else_is_left_behind(nvrtc, cache):
    said: list[str] = []
    kernel_cache.keep_in(cache, said.append)
    first, again = library.compiled(*PROBLEM), library.compiled(*PROBLEM)
    assert first == again == repr(PROBLEM).encode() and nvrtc.compilations == 1
    (folder,) = cache.iterdir()
    lock, path = sorted(folder.iterdir(), key=lambda path: path.suffix)
    assert lock.name == "lock" and path.suffix == ".cubin"
    assert stat.S_IMODE(path.stat().st_mode) == 0o500 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert said == [
        "building the attention kernel for these sizes with NVRTC, once for this machine",
        "the kernel was built in 0 s",
    ]


def test_another_source_constant_gpu_or_compiler_is_another_file(nvrtc, cache, monkeypatch, tmp_path):
    source, constants, capability = PROBLEM
    library.compiled(*PROBLEM)
    library.compiled("plain.cu", constants, capability)
    library.compiled(source, (*constants, ("CAUSAL", 1)), capability)
    library.compiled(source, constants, (8, 9))
    nvrtc.version = (13, 1)
    library.compiled(*PROBLEM)
    shutil.copytree(library.SOURCES, tmp_path / "sources")
    (tmp_path / "sources" / "lanes.h").write_text("// changed\n")
    monkeypatch.setattr(library, "SOURCES", tmp_path / "sources")
    library.compiled(*PROBLEM)
    assert nvrtc.compilations == len([*cache.rglob("*.cubin")]) == 6


@pytest.mark.parametrize("content", [b"", b"short", bytes(100)])
def test_a_file_with_other_bytes_than_were_written_is_compiled_again(nvrtc, cache, content):
    library.compiled(*PROBLEM)
    (path,) = cache.rglob("*.cubin")
    path.chmod(0o700)
    path.write_bytes(content)
    assert library.compiled(*PROBLEM) == repr(PROBLEM).encode() and nvrtc.compilations == 2
    assert library.compiled(*PROBLEM) == repr(PROBLEM).encode() and nvrtc.compilations == 2


@pytest.mark.parametrize("change", [another_user, writable_by_others, a_link])
@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_another_user_may_have_put_there_is_not_loaded(nvrtc, cache, monkeypatch, change, which):
    said: list[str] = []
    kernel_cache.keep_in(cache, said.append)
    library.compiled(*PROBLEM)
    (path,) = cache.rglob("*.cubin")
    change(path if which == "file" else path.parent, monkeypatch)
    assert library.compiled(*PROBLEM) == repr(PROBLEM).encode() and nvrtc.compilations == 2
    assert said[-1].startswith("the attention kernel can't be kept, so each start compiles it: ")
    assert "is a link, another user's, or can be written by others" in said[-1]


def test_where_nothing_can_be_written_it_is_compiled_for_each_process(nvrtc, cache, monkeypatch):
    said: list[str] = []
    kernel_cache.keep_in(cache, said.append)
    cache.write_text("a file where a folder should be")
    assert library.compiled(*PROBLEM) == repr(PROBLEM).encode() and nvrtc.compilations == 1
    assert len(said) == 1 and said[0].startswith("the attention kernel can't be kept, so each start compiles it: ")
    cache.unlink()

    def full(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    # what was compiled before the disk was found to be full is not compiled again
    monkeypatch.setattr(Path, "replace", full)
    assert library.compiled(*PROBLEM) == repr(PROBLEM).encode() and nvrtc.compilations == 2
    assert "No space left on device" in said[-1]
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["lock"]


def test_an_error_of_the_compiler_is_shown_and_nothing_is_kept(nvrtc, cache):
    nvrtc.complaint = "mixed.cu doesn't compile: error"
    with pytest.raises(RuntimeError, match=r"^mixed\.cu doesn't compile: error$"):
        library.compiled(*PROBLEM)
    assert nvrtc.compilations == 1 and [path.name for path in cache.rglob("*") if path.is_file()] == ["lock"]


def test_several_that_compile_at_once_compile_once(nvrtc, cache):
    nvrtc.seconds = 0.2
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(library.compiled(*PROBLEM))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == 4 * [repr(PROBLEM).encode()] and nvrtc.compilations == 1


@pytest.fixture
def bindings(monkeypatch):
    """bindings(version): let `cuda.bindings.nvrtc` be one whose `nvrtcVersion` is this; None: let there be none."""

    def set_bindings(version) -> None:
        cuda, package, nvrtc = (ModuleType(name) for name in ("cuda", "cuda.bindings", "cuda.bindings.nvrtc"))
        cuda.bindings, package.nvrtc, nvrtc.nvrtcVersion = package, nvrtc, version
        for module in (cuda, package, nvrtc):
            monkeypatch.setitem(sys.modules, module.__name__, module if version else None)

    library.absence.cache_clear()
    yield set_bindings
    library.absence.cache_clear()


def test_without_nvrtc_or_its_bindings_it_says_so(bindings):
    def missing():
        raise RuntimeError("Failure finding\n  libnvrtc.so")

    bindings(lambda: (0, 13, 1))
    assert library.absence() is None and library.compiler_version() == (13, 1)
    bindings(missing)
    library.absence.cache_clear()
    assert library.absence() == ("NVRTC, which comes with torch for CUDA, can't be loaded: Failure finding libnvrtc.so")
    bindings(None)
    library.absence.cache_clear()
    assert str(library.absence()).startswith("cuda-bindings isn't installed: it comes with torch 2.10 and newer")
