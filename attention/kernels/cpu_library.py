"""The library of the C++ kernel in `cpu/`: built by the machine's own compiler at first use, then kept and loaded."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

SOURCES = Path(__file__).parent / "cpu"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-w")
# limits of a build: seconds of processor time, because a busy machine only takes longer, and seconds in all
COMPILE_SECONDS, WAIT_SECONDS = 300, 3600
KILLED_SECONDS = 10  # until a compiler that was killed is given up
COMPILERS = ("g++", "clang++", "c++")
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BUILD_PREFIX = "building-"  # the start of the names of the folders for builds


class Library(NamedTuple):
    """The functions of the library, or the reason why there are none."""

    functions: ctypes.CDLL | None
    absence: str | None


_folder = Path(os.path.expanduser("~/.cache/attn"))  # noqa: PTH111 - without a home directory it only stays as it is
_report: Callable[[str], None] | None = None


def build_in(folder: Path, report: Callable[[str], None] | None = None) -> None:
    """Look for the library in this folder from now on, and build it there if it is missing.

    The default is `.cache/attn` in the user's home directory. A library that this process has loaded stays loaded.
    report: receives a line before a build and one after it.
    """
    global _folder, _report
    _folder, _report = folder, report
    if library.cache_info().currsize and library().functions is None:
        library.cache_clear()


@functools.cache
def library() -> Library:
    """The library, built if necessary. A process loads it once."""
    try:
        functions = ctypes.CDLL(str(_build()))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return Library(None, f"it can't be built here: {error}")
    functions.workspace_bytes.restype = ctypes.c_int64
    functions.attend.restype = None
    return Library(functions, None)


def _build() -> Path:
    """Find the library in this user's part of the folder, or build it there, and return its path.

    The name contains a digest of the sources, the compiler, the processor and torch's version, so a change of any of
    them makes another file. Raises RuntimeError, OSError, SubprocessError.
    """
    if os.name != "posix":
        raise RuntimeError("files have no owner here, so nobody can tell whose library it would be")
    compiler = shlex.split(os.environ.get("CXX", "")) or list(filter(None, map(shutil.which, COMPILERS)))[:1]
    if not compiler:
        raise RuntimeError(f"there is no C++ compiler ({', '.join(COMPILERS)})")
    # the predefined macros identify the compiler's version and this processor's instructions
    macros = _compile(*compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    parts = [*sources, macros, " ".join(FLAGS).encode(), torch.__version__.encode()]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    folder = _folder / f"kernels-{os.geteuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(folder)
    path = folder / f"compiled-{key}.so"
    if not _is_complete(path):
        with _only_builder(folder):
            if not _is_complete(path):
                with _announced(compiler[0]):
                    _build_at(path, compiler)
    return path


@contextmanager
def _announced(compiler: str) -> Iterator[None]:
    """Report that the library is being built, and how long it took."""
    report, started = _report or (lambda line: None), time.monotonic()
    report(f"building the attention kernel with {compiler}, once for this machine")
    yield
    report(f"the kernel was built in {time.monotonic() - started:.0f} s")


def _build_at(path: Path, compiler: list[str]) -> None:
    # renamed when it is complete, because another process may load it at the same time
    with _unhandled_signals_raised(), _scratch_folder(path.parent) as temporary:
        built = Path(temporary) / path.name
        _compile(*compiler, *FLAGS, "-o", str(built), str(SOURCES / "attend.cpp"), scratch=temporary)
        content = built.read_bytes()
        built.write_bytes(content + hashlib.sha256(content).digest())
        built.chmod(0o500)
        built.replace(path)


@contextmanager
def _scratch_folder(folder: Path) -> Iterator[str]:
    """A folder for a build, removed when the block ends. What cannot be removed is left to the next build."""
    temporary = tempfile.mkdtemp(prefix=BUILD_PREFIX, dir=folder)
    try:
        yield temporary
    finally:
        with _signals_held():
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Wait until no other process builds in the folder, and remove what killed processes have left there.

    The system releases the lock of a process that dies. On a file system without locks several may build at once.
    """
    import fcntl

    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            for abandoned in folder.glob(f"{BUILD_PREFIX}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _is_complete(path: Path) -> bool:
    """Whether the file exists and has the bytes that were written.

    Loading a file that a power cut has shortened would end the process. Raises RuntimeError for a file that somebody
    else may have written.
    """
    if not os.path.lexists(path):
        return False
    _check_own(path)
    content = path.read_bytes()
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


def _check_own(path: Path) -> None:
    """Check that only this user can have written the file, because a loaded library runs with this user's rights.

    Raises RuntimeError if another user may have written it.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(f"{path} is a link, another user's, or can be written by others: it is not loaded")


class _Unhandled(BaseException):
    """A signal that would have ended this process at once."""


@contextmanager
def _unhandled_signals_raised() -> Iterator[None]:
    """A block that signals without a handler end with an exception; they take effect after the block has cleaned up."""
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise _Unhandled

    try:
        with suppress(_Unhandled), _handlers(end, lambda handler: handler == signal.SIG_DFL):
            yield
    finally:
        for number in dict.fromkeys(received):
            signal.raise_signal(number)


@contextmanager
def _signals_held() -> Iterator[None]:
    """A block in which no handler of INTERRUPTING runs; signals that arrive are sent again after it."""
    received: list[int] = []
    try:
        with _handlers(lambda number, frame: received.append(number), callable):
            yield
    finally:
        for each in dict.fromkeys(received):
            signal.raise_signal(each)


@contextmanager
def _handlers(handler: Callable[[int, FrameType | None], object], replaces: Callable[[object], bool]) -> Iterator[None]:
    """A block in which `handler` handles those signals of INTERRUPTING whose handler it `replaces`.

    Outside the main thread, which alone runs handlers and may replace them, the block has no effect.
    """
    numbers = INTERRUPTING if threading.current_thread() is threading.main_thread() else ()
    before = {number: now for number in numbers if replaces(now := signal.getsignal(number))}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _compile(*command: str, scratch: str = "") -> bytes:
    """Run the compiler and return what it prints. Raises RuntimeError, OSError.

    scratch: the folder for its temporary files, if it writes any.
    """
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"there is no program {command[0]}")
    # the limit holds for each process of the compiler; a lower limit of the system stays
    limited = ("/bin/sh", "-c", f'ulimit -St {COMPILE_SECONDS} 2>/dev/null; exec "$@"', "sh", *command)
    with ExitStack() as held:
        # an interruption before `process` is assigned would leave the compiler running
        held.enter_context(_signals_held())
        with subprocess.Popen(
            limited,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": scratch} if scratch else None,
            start_new_session=True,
        ) as process:
            printed, errors = _communicate(process, held, command[0])
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines() or ["nothing"]
        code = process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise RuntimeError(f"{command[0]} {how} and said: {lines[0]}")
    return printed


def _communicate(process: subprocess.Popen[bytes], held: ExitStack, name: str) -> tuple[bytes, bytes]:
    """Release the held signals, wait for the compiler, and return its output. Raises RuntimeError."""
    try:
        held.close()
        return process.communicate(timeout=WAIT_SECONDS)
    except BaseException as error:
        with _signals_held():
            # the compiler consists of several processes, and none of them may stay behind
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # the output ends with the last of them, which may be about to make a file
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=KILLED_SECONDS)
        if isinstance(error, subprocess.TimeoutExpired):
            raise RuntimeError(f"{name} has not ended after {WAIT_SECONDS} seconds") from error
        raise
