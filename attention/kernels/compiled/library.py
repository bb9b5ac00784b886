"""The library of the C++ sources in this folder: built by the machine's own compiler at first use, kept, and loaded."""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import torch

from attention.kernels.building import kernel_cache
from attention.kernels.building.interruptions import signals_held

SOURCES = Path(__file__).parent
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-w"),
    # two numbers in bfloat16 are written one by one and read together as a lane of 32 bits
    "-fno-strict-aliasing",
)
# limits of a build: seconds of processor time, because a busy machine only takes longer, and seconds in all
COMPILE_SECONDS, WAIT_SECONDS = 300, 3600
KILLED_SECONDS = 10  # until a compiler that was killed is given up
COMPILERS = ("g++", "clang++", "c++")


class Library(NamedTuple):
    """The functions of the library, or the reason why there are none."""

    functions: ctypes.CDLL | None
    absence: str | None


def build_in(folder: Path, report: Callable[[str], None] | None = None) -> None:
    """Look for compiled kernels in this folder from now on, and build the library there if it is missing.

    A library that this process has loaded stays loaded. Defaults and report are those of `kernel_cache.keep_in`.
    """
    kernel_cache.keep_in(folder, report)
    if loaded.cache_info().currsize and loaded().functions is None:
        loaded.cache_clear()


@functools.cache
def loaded() -> Library:
    """The library, built if necessary. A process loads it once."""
    try:
        functions = ctypes.CDLL(str(_build()))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return Library(None, f"it can't be built here: {error}")
    functions.workspace_bytes.restype = ctypes.c_int64
    functions.attend.restype = None
    return Library(functions, None)


def identify_compiler() -> None:
    """Ask the compiler what it is, for this process and those that it forks. If that fails, each of them asks again."""
    with suppress(OSError, RuntimeError, subprocess.SubprocessError):
        _macros(_compiler())


def _build() -> Path:
    """Find the library, or build it, and return its path.

    Its name contains a digest of the sources, the compiler, the processor and torch's version. Raises RuntimeError,
    OSError, SubprocessError.
    """
    compiler = _compiler()
    macros = _macros(compiler)
    name = kernel_cache.name_of_build(SOURCES, macros, " ".join(FLAGS).encode(), torch.__version__.encode())

    def build(scratch: str) -> bytes:
        built = Path(scratch) / "library.so"
        _compile(*compiler, *FLAGS, "-o", str(built), str(SOURCES / "attend.cpp"), scratch=scratch)
        return built.read_bytes()

    what = f"the attention kernel with {compiler[0]}, once for this machine"
    return kernel_cache.kept(f"{name}.so", what, build)


def _compiler() -> tuple[str, ...]:
    """The command of the C++ compiler. Raises RuntimeError if there is none."""
    if named := shlex.split(os.environ.get("CXX", "")):
        return tuple(named)
    if found := next(filter(None, map(shutil.which, COMPILERS)), None):
        return (found,)
    raise RuntimeError(f"there is no C++ compiler ({', '.join(COMPILERS)})")


@functools.cache
def _macros(compiler: tuple[str, ...]) -> bytes:
    """The predefined macros, which identify the compiler's version and this processor's instructions.

    Raises RuntimeError, OSError, SubprocessError.
    """
    return _compile(*compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)


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
        held.enter_context(signals_held())
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
        with signals_held():
            # the compiler consists of several processes, and none of them may stay behind
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # the output ends with the last of them, which may be about to make a file
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=KILLED_SECONDS)
        if isinstance(error, subprocess.TimeoutExpired):
            raise RuntimeError(f"{name} has not ended after {WAIT_SECONDS} seconds") from error
        raise
