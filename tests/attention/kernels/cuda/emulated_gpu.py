"""The programs of `attention/kernels/cuda` on a CPU, where `emulated_gpu.cpp` stands in for `lanes.h`."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from attention.kernels.building import kernel_cache
from attention.kernels.compiled.library import COMPILERS
from attention.kernels.cuda import kernel, library
from attention.kernels.cuda.launch import LARGEST_SHARED_LIMIT

GPU = Path(__file__).with_name("emulated_gpu.cpp")
COMPILER = shlex.split(os.environ.get("CXX", "")) or list(filter(None, map(shutil.which, COMPILERS)))[:1]
# without the checks of glibc, which take a jump from one fiber to another for a mistake
FLAGS = ("-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-U_FORTIFY_SOURCE")


class Programs:
    """Stands in for `library.Programs`: runs the programs on the tensors of the CPU."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def launch(self, program: str, blocks: int, threads: int, shared_bytes: int, arguments: ctypes.Structure) -> None:
        """Run a program. The process ends with a message if the program does what a GPU doesn't take."""
        self.library.launch(program.encode(), blocks, threads, shared_bytes, ctypes.byref(arguments))


def build(source: str, constants: library.Constants, sources: Path) -> Path:
    """The library of a source's programs for these constants, built if it isn't in the cache."""
    definitions = [f"-D{Path(source).stem.upper()}", *(f"-D{name}={value}" for name, value in constants)]
    name = kernel_cache.name_of_build(sources, GPU.read_bytes(), " ".join([*COMPILER, *FLAGS, *definitions]).encode())

    def compiled(scratch: str) -> bytes:
        built = Path(scratch) / "library.so"
        subprocess.run(
            [*COMPILER, *FLAGS, *definitions, f"-I{sources}", str(GPU), "-o", str(built)],
            env=os.environ | {"TMPDIR": scratch},
            check=True,
        )
        return built.read_bytes()

    return kernel_cache.kept(f"{name}.so", "an emulated kernel", compiled)


class Compiled(NamedTuple):
    """A file of the programs, the constants that it is compiled for, and what is launched of it."""

    source: str
    constants: library.Constants
    launches: dict[str, tuple[int, int]]  # by the program: threads of a block, bytes of shared memory

    def launch(self, program: str, blocks: int, threads: int, shared_bytes: int, arguments: ctypes.Structure) -> None:
        """Note a launch."""
        self.launches[program] = (threads, shared_bytes)


@contextmanager
def emulated_gpu(cache: Path, sources: Path = library.SOURCES) -> Iterator[None]:
    """A block in which backend=cuda takes tensors of the CPU.

    cache: the folder where libraries are kept. sources: the folder of the programs.
    """
    loaded: dict[tuple[str, library.Constants], Programs] = {}

    def programs(source: str, constants: library.Constants, device: torch.device) -> Programs:
        if (source, constants) not in loaded:
            with mock.patch.multiple(kernel_cache, _folder=cache, _report=None):
                loaded[source, constants] = Programs(build(source, constants, sources))
        return loaded[source, constants]

    with _gpu(programs, LARGEST_SHARED_LIMIT):
        yield


@contextmanager
def launches_noted(shared_limit: int) -> Iterator[list[Compiled]]:
    """A block in which backend=cuda takes tensors of the CPU, notes what it would launch, and computes nothing.

    shared_limit: bytes of shared memory that the GPU has for a program.
    """
    noted: dict[tuple[str, library.Constants], Compiled] = {}
    everything: list[Compiled] = []

    def programs(source: str, constants: library.Constants, device: torch.device) -> Compiled:
        if (source, constants) not in noted:
            noted[source, constants] = Compiled(source, constants, {})
            everything.append(noted[source, constants])
        return noted[source, constants]

    with _gpu(programs, shared_limit):
        yield everything


@contextmanager
def _gpu(programs: Callable[..., Any], shared_limit: int) -> Iterator[None]:
    with (
        mock.patch.object(library, "programs", programs),
        mock.patch.object(kernel, "absence", lambda device: None),
        mock.patch.object(kernel, "shared_limit", lambda device: shared_limit),
    ):
        yield
