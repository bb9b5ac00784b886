"""The C++ kernel in `cpu/`. The machine's own compiler builds it at first use; the library is kept and loaded later.

If there is no compiler, or it fails, `refusal` says so, and `auto` computes in blocks instead.
"""

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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.kernels.compiler import constant
from attention.kernels.dropout import keep_scale, keep_threshold, seed_number
from attention.kernels.problem import Problem

SOURCES = Path(__file__).parent / "cpu"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-w")
TYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float64: 2}
# limits of a build: seconds of processor time, because a busy machine only takes longer, and seconds in all
COMPILE_SECONDS, WAIT_SECONDS = 300, 3600
COMPILERS = ("g++", "clang++", "c++")
BUILD_PREFIX = "building-"  # the start of the names of the folders for builds
# With at least HEADS_PER_THREAD heads for each thread, whole heads are divided evenly enough. Threads share an example
# only if it has at least SHARED_WEIGHTS weights: they wait for each other several times, which takes longer than the
# work on a small example
HEADS_PER_THREAD, SHARED_WEIGHTS = 4, 2**18


def refusal(problem: Problem) -> str | None:
    """Why this kernel can't do the problem, or None. The first call may take the seconds that a build takes."""
    query = problem.query
    if query.device.type != "cpu":
        return f"it runs on a CPU, not on {query.device.type}"
    mixing = [*(problem.logits_projection or ()), *(problem.weights_projection or ())]
    terms = [term for term in mixing if term is not None]
    dtypes = {each.dtype for each in (query, problem.key, problem.value, *terms)}
    if not dtypes <= {query.dtype} & TYPE_CODES.keys():
        return f"it needs one dtype of float32, bfloat16 and float64, not {' and '.join(sorted(map(str, dtypes)))}"
    if any(term.ndim > 2 for term in terms):
        return "it can't mix heads by position (a projection is dynamic)"
    if problem.bias is not None and problem.bias.requires_grad:
        return "it has no gradient of a bias"
    if 0 in query.shape or 0 in problem.key.shape or 0 in problem.value.shape:
        return "it needs at least one number in every tensor"
    return absence()


# a constant in a compiled model, because torch.compile can't trace the run of a compiler
@constant
def absence() -> str | None:
    """Why this kernel can't run on this machine, whatever the problem, or None.

    If there is a reason, `auto` computes in blocks, which is several times slower; a run can report the reason.
    """
    return library().absence


def build_in(folder: Path, report: Callable[[str], None] | None = None) -> None:
    """Look for the library in this folder from now on, and build it there if it is missing.

    The default is `.cache/attn` in the user's home directory. A library that this process has loaded stays loaded.
    report: receives a line before a build and one after it.
    """
    global _folder, _report
    _folder, _report = folder, report
    if library.cache_info().currsize and library().functions is None:
        library.cache_clear()


def attend(problem: Problem) -> Tensor:
    """Compute the same as the reference, including gradients, and keep only the inputs for the backward pass.

    Sums are in float32 or better. The same number of threads gives the same bits. A second derivative raises
    RuntimeError.
    """
    logits, weights = (each and each.static for each in (problem.logits_projection, problem.weights_projection))
    bias = None if problem.bias is None else problem.bias.to(problem.query.dtype)
    tensors = (problem.query, problem.key, problem.value, logits, weights, bias, problem.mask, problem.dropout_seed)
    return _attend(*tensors, problem.causal, problem.scale, problem.dropout)


# An operator takes tensors and numbers but no tuples of them, so its arguments are the fields of the problem
@torch.library.custom_op("attention::compiled", mutates_args=(), device_types="cpu")
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logits_projection: Tensor | None,
    weights_projection: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    dropout_seed: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    output = value.new_empty(*query.shape[:2], *value.shape[2:])
    tensors = _Tensors(query, key, value, logits_projection, weights_projection, bias, mask, dropout_seed)
    _Arguments(tensors, causal, scale, dropout).run(output=output)
    return output


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    return value.new_empty(*query.shape[:2], *value.shape[2:])


@torch.library.custom_op("attention::compiled_backward", mutates_args=(), device_types="cpu")
def _gradients(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logits_projection: Tensor | None,
    weights_projection: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    dropout_seed: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> list[Tensor]:
    """The gradients of query, key, value, P_l and P_w; empty for a projection that is None."""
    tensors = _Tensors(query, key, value, logits_projection, weights_projection, bias, mask, dropout_seed)
    arguments = _Arguments(tensors, causal, scale, dropout)
    sum_dtype = torch.promote_types(query.dtype, torch.float32)
    grads = {
        f"grad_{name}": torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for name, tensor in (("query", query), ("key", key), ("value", value))
    }
    projections = {"logits_projection": logits_projection, "weights_projection": weights_projection}
    for name, matrix in projections.items():
        shape = (0,) if matrix is None else (arguments.batch, *matrix.shape)
        grads[f"grad_{name}"] = torch.zeros(shape, dtype=sum_dtype)
    arguments.run(grad_output=grad_output.contiguous(), **grads)
    matrices = [grads[f"grad_{name}"].sum(0).to(query.dtype) for name in projections]
    return [grads["grad_query"], grads["grad_key"], grads["grad_value"], *matrices]


@_gradients.register_fake
def _(grad_output: Tensor, query: Tensor, key: Tensor, value: Tensor, logits: Any, weights: Any, *rest: Any) -> Any:
    matrices = [query.new_empty(() if matrix is None else matrix.shape) for matrix in (logits, weights)]
    return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (query, key, value)] + matrices


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    count = len(_Tensors._fields)
    ctx.save_for_backward(*inputs[:count])
    ctx.settings = inputs[count:]


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
    *grads, logits, weights = _gradients(grad_output, *ctx.saved_tensors, *ctx.settings)
    has_logits, has_weights = (each is not None for each in ctx.saved_tensors[3:5])
    # bias, mask, seed and the three settings have no gradient
    return (*grads, logits if has_logits else None, weights if has_weights else None, *6 * [None])


_attend.register_autograd(_backward, setup_context=_save_inputs)


class _Tensors(NamedTuple):
    """The tensors of a problem that this kernel can do; the projections are static matrices."""

    query: Tensor
    key: Tensor
    value: Tensor
    logits_projection: Tensor | None  # [h_k, h]
    weights_projection: Tensor | None  # [h, h_v]
    bias: Tensor | None
    mask: Tensor | None
    dropout_seed: Tensor | None


SIZES = ("batch", "queries", "memory", "key_heads", "softmax_heads", "value_heads", "key_size", "value_size")
CONTIGUOUS = ("query", "key", "value", "logits_projection", "weights_projection")


class _Arguments(ctypes.Structure):
    """The struct `Problem` of `cpu/problem.h`, field by field."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (*SIZES, "causal", "threads", "groups", "shared_groups", "has_dropout", "keep_threshold")
        ),
        *((name, ctypes.c_double) for name in ("scale", "keep_scale")),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in (*CONTIGUOUS, "bias", "mask")),
        *((name, 4 * ctypes.c_int64) for name in ("bias_strides", "mask_strides")),
        *((name, ctypes.c_void_p) for name in ("workspace", "output", "grad_output")),
        *((f"grad_{name}", ctypes.c_void_p) for name in CONTIGUOUS),
    )

    def __init__(self, tensors: _Tensors, causal: bool, scale: float, dropout: float) -> None:
        super().__init__(causal=causal, scale=scale, threads=torch.get_num_threads())
        self.batch, self.queries, self.key_heads, self.key_size = tensors.query.shape
        _, self.memory, self.value_heads, self.value_size = tensors.value.shape
        logits, weights = tensors.logits_projection, tensors.weights_projection
        self.softmax_heads = self.key_heads if logits is None else logits.shape[1]
        self._divide_among_threads(mixes=logits is not None or weights is not None)
        if dropout > 0:
            self.has_dropout, self.keep_threshold, self.keep_scale = 1, keep_threshold(dropout), keep_scale(dropout)
            self.seed = seed_number(tensors.dropout_seed, tensors.query)
        self.dtype = tensors.query.dtype
        for name in ("bias", "mask"):
            tensor = getattr(tensors, name)
            if tensor is not None:
                # a dimension of 1 is the same for all indices
                strides = zip(tensor.shape, tensor.stride(), strict=True)
                steps = [0 if size == 1 else stride for size, stride in strides]
                setattr(self, f"{name}_strides", (4 * ctypes.c_int64)(*steps))
        contiguous = {name: getattr(tensors, name) for name in CONTIGUOUS}
        contiguous = {name: None if tensor is None else tensor.contiguous() for name, tensor in contiguous.items()}
        self._point_to(bias=tensors.bias, mask=tensors.mask, **contiguous)

    def _divide_among_threads(self, mixes: bool) -> None:
        """Set the number of groups of heads in an example, and how many of the last groups all threads share."""
        heads, weights = self.batch * self.softmax_heads, self.softmax_heads * self.queries * self.memory
        shares = weights >= SHARED_WEIGHTS
        if mixes or (shares and heads % self.threads and heads < HEADS_PER_THREAD * self.threads):
            self.groups, self.shared_groups = 1, self.batch % self.threads if shares else 0
        else:
            self.groups = self.softmax_heads

    def _point_to(self, **tensors: Tensor | None) -> None:
        """Point the fields at the tensors, and keep the tensors alive."""
        self.referenced = [*getattr(self, "referenced", ()), *tensors.values()]
        for name, tensor in tensors.items():
            setattr(self, name, None if tensor is None else tensor.data_ptr())

    def run(self, **tensors: Tensor) -> None:
        """Run the forward pass if `output` is among the tensors, else the backward pass. All must be contiguous."""
        backward = "output" not in tensors
        workspace = torch.empty(self.workspace_bytes(backward), dtype=torch.uint8)
        self._point_to(workspace=workspace, **tensors)
        self._library().attend(ctypes.byref(self), TYPE_CODES[self.dtype], int(backward))

    def workspace_bytes(self, backward: bool) -> int:
        """Bytes that a run takes besides its tensors; at most about 11 times those of its queries, keys and values."""
        return int(self._library().workspace_bytes(ctypes.byref(self), TYPE_CODES[self.dtype], int(backward)))

    def _library(self) -> ctypes.CDLL:
        functions = library().functions
        assert functions is not None, "refused"
        return functions


class Library(NamedTuple):
    """The functions of the library, or the reason why there are none."""

    functions: ctypes.CDLL | None
    absence: str | None


_folder = Path.home() / ".cache" / "attn"
_report: Callable[[str], None] | None = None


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
    with tempfile.TemporaryDirectory(prefix=BUILD_PREFIX, dir=path.parent) as temporary:
        built = Path(temporary) / path.name
        _compile(*compiler, *FLAGS, "-o", str(built), str(SOURCES / "attend.cpp"), scratch=temporary)
        content = built.read_bytes()
        built.write_bytes(content + hashlib.sha256(content).digest())
        built.chmod(0o500)
        built.replace(path)


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


@contextmanager
def _signals_held() -> Iterator[None]:
    """A block in which no handler of SIGINT and SIGTERM runs; signals that arrive are sent again after it."""
    received: list[int] = []
    # only the main thread runs handlers and may replace them; a signal without a handler takes effect at once
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in dict.fromkeys(received):
            signal.raise_signal(each)


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
        # the compiler consists of several processes, and none of them may stay behind
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if isinstance(error, subprocess.TimeoutExpired):
            raise RuntimeError(f"{name} has not ended after {WAIT_SECONDS} seconds") from error
        raise
