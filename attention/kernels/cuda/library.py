"""The programs in this folder: compiled by NVRTC for the sizes of a problem, kept, and launched by the driver.

NVRTC and its bindings come with torch for CUDA, so no compiler has to be installed.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import torch

from attention.kernels.building import kernel_cache

SOURCES = Path(__file__).parent
Constants = tuple[tuple[str, int], ...]


@functools.cache
def absence() -> str | None:
    """Why programs can't be compiled here, or None."""
    try:
        compiler_version()
    except ImportError:
        return "cuda-bindings isn't installed: it comes with torch 2.10 and newer for CUDA"
    except RuntimeError as error:
        return f"NVRTC, which comes with torch for CUDA, can't be loaded: {' '.join(str(error).split())}"
    return None


class Programs:
    """The programs of one source for one set of sizes, loaded on one GPU."""

    def __init__(self, source: str, constants: Constants, device: torch.device) -> None:
        from cuda.bindings import driver

        self.driver, self.functions = driver, dict[str, Any]()
        # autograd's threads may not have torch's context yet
        self.context = self._call(driver.cuDevicePrimaryCtxRetain, self._call(driver.cuDeviceGet, device.index))
        self._call(driver.cuCtxSetCurrent, self.context)
        binary = compiled(source, constants, torch.cuda.get_device_capability(device))
        self.module = self._call(driver.cuModuleLoadData, binary)

    def launch(self, program: str, blocks: int, threads: int, shared_bytes: int, arguments: ctypes.Structure) -> None:
        """Launch a program on torch's current stream. Raises RuntimeError for an error of the driver."""
        self._call(self.driver.cuCtxSetCurrent, self.context)
        if program not in self.functions:
            function = self._call(self.driver.cuModuleGetFunction, self.module, program.encode())
            attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(self.driver.cuFuncSetAttribute, function, attribute, shared_bytes)
            self.functions[program] = function
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        stream = torch.cuda.current_stream().cuda_stream
        self._call(
            self.driver.cuLaunchKernel,
            self.functions[program], blocks, 1, 1, threads, 1, 1, shared_bytes, stream, ctypes.addressof(parameters), 0,
        )  # fmt: skip

    def _call(self, function: Any, *arguments: Any) -> Any:
        error, *results = function(*arguments)
        if error != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{function.__name__} failed: {error.name}")
        return results[0] if results else None


@functools.cache
def programs(source: str, constants: Constants, device: torch.device) -> Programs:
    """The programs of a source for these constants on a GPU. The first call compiles them, if none are kept."""
    return Programs(source, constants, device)


def compiled(source: str, constants: Constants, capability: tuple[int, int]) -> bytes:
    """The binary of a source: from the cache, or compiled and put there. Raises what `compile_programs` raises.

    The file's name contains a digest of all sources, the constants, the GPU's capability and NVRTC's version.
    """
    key = repr((source, _options(constants, capability), compiler_version()))
    name = kernel_cache.name_of_build(SOURCES, key.encode())
    # compiled once, also if it can't be kept
    binary = functools.cache(lambda: compile_programs(source, constants, capability))
    try:
        what = "the attention kernel for these sizes with NVRTC, once for this machine"
        return kernel_cache.content(kernel_cache.kept(f"{name}.cubin", what, lambda scratch: binary()))
    except (OSError, kernel_cache.NotKept) as error:
        kernel_cache.say(f"the attention kernel can't be kept, so each start compiles it: {error}")
        return binary()


def compile_programs(source: str, constants: Constants, capability: tuple[int, int]) -> bytes:
    """Compile a source for GPUs of a compute capability. Raises RuntimeError with the compiler's messages."""
    from cuda.bindings import nvrtc

    text = (SOURCES / source).read_bytes()
    options = [*_options(constants, capability), f"--include-path={SOURCES}"]
    _, program = nvrtc.nvrtcCreateProgram(text, source.encode(), 0, [], [])
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        messages = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
        nvrtc.nvrtcGetProgramLog(program, messages)
        raise RuntimeError(f"{source} doesn't compile: {messages.decode(errors='replace').rstrip(chr(0))}")
    binary = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
    nvrtc.nvrtcGetCUBIN(program, binary)
    nvrtc.nvrtcDestroyProgram(program)
    return binary


def _options(constants: Constants, capability: tuple[int, int]) -> list[str]:
    """NVRTC's options that change the binary."""
    architecture = f"--gpu-architecture=sm_{capability[0]}{capability[1]}"
    return [architecture, "-std=c++17", *(f"-D{name}={value}" for name, value in constants)]


def compiler_version() -> tuple[int, int]:
    """NVRTC's version. Raises ImportError without its bindings, and RuntimeError without NVRTC."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor
