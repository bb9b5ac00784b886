"""The sources in `cpu/` as a kernel: built at first use by the machine's own compiler, kept, and loaded from then on.

Where there is no compiler, or it fails, `refusal` says so, and `auto` computes in blocks instead.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attention.kernels.problem import Case

SOURCES = Path(__file__).parent / "cpu"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-w")
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float64: 2}
COMPILE_SECONDS = 120
COMPILERS = ("g++", "clang++", "c++")
# tasks for each thread where threads don't divide the groups evenly, and rows that make up a task at least
TASKS_PER_THREAD, ROWS_PER_TASK = 4, 32


def refusal(case: Case) -> str | None:
    """Why this kernel can't do the case, or None. The first call may take the seconds of compiling."""
    query = case.query
    if query.device.type != "cpu":
        return f"it runs on a CPU, not on {query.device.type}"
    mixing = [*(case.logits_projection or ()), *(case.weights_projection or ())]
    terms = [term for term in mixing if term is not None]
    dtypes = {each.dtype for each in (query, case.key, case.value, *terms)}
    if not dtypes <= {query.dtype} & TYPES.keys():
        return f"it needs one dtype of float32, bfloat16 and float64, not {' and '.join(sorted(map(str, dtypes)))}"
    if any(term.ndim > 2 for term in terms):
        return "it can't mix heads by position (a projection is dynamic)"
    if case.bias is not None and case.bias.requires_grad:
        return "it has no gradient of a bias"
    if 0 in query.shape or 0 in case.key.shape or 0 in case.value.shape:
        return "it needs at least one number in every tensor"
    return why_not() or None


# a constant of a compiled model, which could not trace a compiler's run
@torch.compiler.assume_constant_result
def why_not() -> str:
    """Why there is no library here; empty: there is one."""
    return library()[1]


def attend(case: Case) -> Tensor:
    """As the reference, gradients included, with only the inputs kept for the backward. Sums are in float32 or better.

    The same threads give the same bits. A second derivative raises RuntimeError.
    """
    # drawn from the global generator, so that its seed decides the dropout here as in any other layer
    seed = int(torch.randint(2**62, (), device="cpu")) if case.dropout else 0
    logits, weights = (each and each.static for each in (case.logits_projection, case.weights_projection))
    bias = None if case.bias is None else case.bias.to(case.query.dtype)
    tensors = (case.query, case.key, case.value, logits, weights, bias, case.mask)
    return _attend(*tensors, case.causal, case.scale, case.dropout, seed)


@torch.library.custom_op("attention::compiled", mutates_args=(), device_types="cpu")
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    logits: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    seed: int,
) -> Tensor:
    output = value.new_empty(*query.shape[:2], *value.shape[2:])
    problem = _Problem.of(query, key, value, logits, weights, bias, mask, causal, scale, dropout, seed)
    problem.run(output=output)
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
    logits: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    seed: int,
) -> list[Tensor]:
    """Of query, key, value, P_l and P_w; empty where there is no projection."""
    problem = _Problem.of(query, key, value, logits, weights, bias, mask, causal, scale, dropout, seed)
    wide = torch.promote_types(query.dtype, torch.float32)
    tasks = problem.B * problem.chunks
    grads = {
        f"grad_{name}": torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for name, tensor in (("query", query), ("key", key), ("value", value))
    }
    for name, matrix in (("grad_logits", logits), ("grad_weights", weights)):
        grads[name] = torch.zeros((0,) if matrix is None else (tasks, *matrix.shape), dtype=wide)
    problem.run(grad_output=grad_output.contiguous(), **grads)
    matrices = [grads[name].sum(0).to(query.dtype) for name in ("grad_logits", "grad_weights")]
    return [grads["grad_query"], grads["grad_key"], grads["grad_value"], *matrices]


@_gradients.register_fake
def _(grad_output: Tensor, query: Tensor, key: Tensor, value: Tensor, logits: Any, weights: Any, *rest: Any) -> Any:
    matrices = [query.new_empty(() if matrix is None else matrix.shape) for matrix in (logits, weights)]
    return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (query, key, value)] + matrices


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.settings = inputs[7:]


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
    *grads, logits, weights = _gradients(grad_output, *ctx.saved_tensors, *ctx.settings)
    has_logits, has_weights = (each is not None for each in ctx.saved_tensors[3:5])
    return (*grads, logits if has_logits else None, weights if has_weights else None, *6 * [None])


_attend.register_autograd(_backward, setup_context=_remember)


INTEGERS = ("B", "N", "M", "hk", "h", "hv", "K", "V", "causal", "threads", "groups", "chunks")


class _Problem(ctypes.Structure):
    """`Problem` of the sources, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in INTEGERS),
        *((name, ctypes.c_double) for name in ("scale", "growth")),
        *((name, ctypes.c_uint64) for name in ("seed", "kept")),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "logits", "weights", "bias", "mask")),
        *((name, 4 * ctypes.c_int64) for name in ("bias_strides", "mask_strides")),
        *((name, ctypes.c_void_p) for name in ("workspace", "output", "grad_output")),
        *((f"grad_{name}", ctypes.c_void_p) for name in ("query", "key", "value", "logits", "weights")),
    )

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        logits: Tensor | None,
        weights: Tensor | None,
        bias: Tensor | None,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        dropout: float,
        seed: int,
    ) -> _Problem:
        problem = cls(causal=causal, scale=scale, seed=seed, threads=torch.get_num_threads())
        problem.B, problem.N, problem.hk, problem.K = query.shape
        _, problem.M, problem.hv, problem.V = value.shape
        problem.h = problem.hk if logits is None else logits.shape[1]
        # heads that don't mix are tasks of their own
        problem.groups = problem.h if logits is None and weights is None else 1
        problem.chunks = _chunks(problem.B * problem.groups, problem.N, problem.threads)
        problem.kept = 2**32 if dropout == 0 else min(max(round((1 - dropout) * 2**32), 1), 2**32 - 1)
        problem.growth = 2**32 / problem.kept
        problem.dtype = query.dtype
        for name, tensor in (("bias", bias), ("mask", mask)):
            if tensor is not None:
                # a dimension of 1 belongs to all
                strides = zip(tensor.shape, tensor.stride(), strict=True)
                steps = [0 if size == 1 else stride for size, stride in strides]
                setattr(problem, f"{name}_strides", (4 * ctypes.c_int64)(*steps))
        dense = {"query": query, "key": key, "value": value, "logits": logits, "weights": weights}
        dense = {name: None if tensor is None else tensor.contiguous() for name, tensor in dense.items()}
        problem._point(bias=bias, mask=mask, **dense)
        return problem

    def _point(self, **tensors: Tensor | None) -> None:
        """Let the fields point to the tensors, which live as long as this does."""
        self.held = [*getattr(self, "held", ()), *tensors.values()]
        for name, tensor in tensors.items():
            setattr(self, name, None if tensor is None else tensor.data_ptr())

    def run(self, **tensors: Tensor) -> None:
        """Forward with `output`, else backward; contiguous tensors."""
        built = library()[0]
        assert built is not None
        way = ctypes.byref(self), TYPES[self.dtype], int("output" not in tensors)
        workspace = torch.empty(built.workspace_bytes(*way), dtype=torch.uint8)
        self._point(workspace=workspace, **tensors)
        built.attend(*way)


def _chunks(groups: int, rows: int, threads: int) -> int:
    """Into how many tasks the rows of a group of heads are divided, so that all threads have work."""
    if groups % threads == 0:
        return 1
    return max(1, min(rows // ROWS_PER_TASK, -(-TASKS_PER_THREAD * threads // groups)))


@functools.cache
def library() -> tuple[Any, str]:
    """The built source, or None and why there is none."""
    try:
        built = ctypes.CDLL(str(_build()))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return None, f"it can't be built here: {error}"
    built.workspace_bytes.restype = ctypes.c_int64
    built.attend.restype = None
    return built, ""


def _build() -> Path:
    """The library, from this user's part of the cache, or built into it. Raises RuntimeError, OSError, SubprocessError.

    Its name is a digest of all that it is made of: another source, compiler, processor or torch finds another file.
    """
    if os.name != "posix":
        raise RuntimeError("files have no owner here whom the kept library could be told by")
    compiler = shlex.split(os.environ.get("CXX", "")) or list(filter(None, map(shutil.which, COMPILERS)))[:1]
    if not compiler:
        raise RuntimeError(f"there is no C++ compiler ({', '.join(COMPILERS)})")
    # what it defines by itself is its version, and the instructions of this processor
    macros = _compile(*compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    parts = [*sources, macros, " ".join(FLAGS).encode(), torch.__version__.encode()]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    cache = Path(os.environ.get("ATTN_CACHE") or Path.home() / ".cache" / "attn")
    folder = cache / f"kernels-{os.geteuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(folder)
    path = folder / f"compiled-{key}.so"
    if not _is_whole(path):
        # renamed when it is whole: another process may build or load it at the same time
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            made = Path(temporary) / path.name
            _compile(*compiler, *FLAGS, "-o", str(made), str(SOURCES / "attend.cpp"))
            content = made.read_bytes()
            made.write_bytes(content + hashlib.sha256(content).digest())
            made.chmod(0o500)
            made.replace(path)
    return path


def _is_whole(path: Path) -> bool:
    """Whether the file is there as it was written: what a power cut has shortened would end the process when loaded.

    Raises RuntimeError for one that this user alone didn't write.
    """
    if not os.path.lexists(path):
        return False
    _check_own(path)
    content = path.read_bytes()
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


def _check_own(path: Path) -> None:
    """A loaded library runs with this user's rights. Raises RuntimeError for what another user may have put there."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(f"{path} is a link, another user's, or can be written by others: it is not loaded")


def _compile(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=COMPILE_SECONDS, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
        raise RuntimeError(f"{command[0]} ended with code {done.returncode} and said: {said[0]}")
    return done.stdout
