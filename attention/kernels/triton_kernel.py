"""Mixed heads on a GPU, by Triton programs that store no maps: only inputs, outputs and two sums for each row.

The programs are in `triton_programs`. That module needs Triton, so it is imported at its first use.
"""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attention.kernels.dropout import has_no_data, keep_scale, keep_threshold, seed_number
from attention.kernels.problem import Problem
from attention.kernels.torch_compile import not_compiled

# Query rows and memory positions of a tile. They are the fewest that a product on tensor cores takes, because a tile
# has all heads, and three maps and a sum exist at once. With 32 heads of size 32 and 8 warps, a map in float32 takes 32
# of a thread's 255 registers, and a sum of vectors takes 64. Compiled for Hopper, the forward pass spills no registers,
# and the backward pass spills 200 bytes
ROWS = COLUMNS = 16
COMPILATION = {"num_warps": 8, "num_stages": 1}
TENSOR_COLUMNS = 512  # columns of an SM's tensor memory, from compute capability 10.0; Triton has the same limit
# the tensors that the programs take after the mask, in the dtype of the inputs or in that of sums
MORE = {
    "forward": {"output": "input", "lse": "sum"},
    "backward_queries": {
        "lse": "sum", "grad_output": "input", "correction": "sum", "grad_query": "input",
        "grad_logits_projection": "sum", "grad_weights_projection": "sum",
    },
    "backward_memory": {
        "lse": "sum", "grad_output": "input", "correction": "sum", "grad_key": "input", "grad_value": "input",
    },
}  # fmt: skip


def absence(device: torch.device) -> str | None:
    """Why this kernel can't run on the device, whatever the problem, or None. Meta tensors are accepted everywhere."""
    if device.type == "meta" or interpreted():
        return None
    if device.type != "cuda":
        return f"it runs on a CUDA GPU, not on {device.type}"
    if programs() is None:
        return "Triton isn't installed: it comes with torch for CUDA, on Linux"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    return None


@not_compiled
def refusal(problem: Problem) -> str | None:
    """Why this kernel can't do the problem, or None. On a GPU the first such problem compiles the programs."""
    query, value, mask = problem.query, problem.value, problem.mask
    reason = absence(query.device)
    if reason is not None:
        return reason
    if any(
        each is not None and each.static is None for each in (problem.logits_projection, problem.weights_projection)
    ):
        return "it mixes heads by static projections only"
    if problem.bias is not None:
        return "it takes no bias on the logits"
    if mask is not None and mask.shape[1:] != (1, 1, problem.key.shape[1]):
        return "it takes a mask of memory positions only, [B, 1, 1, M]"
    if query.shape[-1] == 0 or value.shape[-1] == 0:
        return "it needs a key size and a value size of at least 1"
    launch = Launch.of(problem)
    dtypes = {each.dtype for each in launch.tensors()[:5] if each is not None}
    if len(dtypes) > 1:
        return f"its tensors must be of one type, not {' and '.join(sorted(map(str, dtypes)))}"
    # float64 is for comparing the programs with the reference, in the interpreter
    allowed = (torch.float32, torch.bfloat16, torch.float16, *([] if query.is_cuda else [torch.float64]))
    if query.dtype not in allowed:
        return f"it computes in float32, bfloat16 or float16, not in {query.dtype}"
    if query.is_cuda and not interpreted():
        needed, limit = launch.shared_bytes(), _shared_limit(query.get_device())
        if launch.tensor_columns() > TENSOR_COLUMNS:
            return f"its tiles need {launch.tensor_columns()} columns of tensor memory, and a GPU has {TENSOR_COLUMNS}"
        if needed > limit:
            return f"its tiles need {needed:,} bytes of shared memory, and a program has {limit:,} on this GPU"
    return None


@not_compiled
def attend(problem: Problem) -> Tensor:
    """Compute the same as the reference, including gradients.

    The backward pass needs the inputs and one sum for each row and head. Products are in the dtype of the inputs; sums
    and the softmax are in float32. There are no atomic additions, so the same inputs give the same bits. A second
    derivative raises torch's RuntimeError.
    """
    launch = Launch.of(problem)
    return _Mixed.apply(launch.options(), *launch.tensors())


@functools.cache
def programs() -> ModuleType | None:
    """The module of the programs, or None if Triton isn't installed."""
    try:
        from attention.kernels import triton_programs
    except ImportError:
        return None
    return triton_programs


def interpreted() -> bool:
    """Whether Triton interprets the programs on the CPU: TRITON_INTERPRET=1 was set before Triton was imported."""
    module = programs()
    return module is not None and not isinstance(module.forward, module.triton.JITFunction)


@functools.cache
def _shared_limit(device: int) -> int:
    """Bytes of shared memory that a program can have on a GPU."""
    module = programs()
    assert module is not None, "refused"
    return int(module.triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"])


class Launch(NamedTuple):
    """A problem that isn't refused, in the form in which the programs are launched on it."""

    query: Tensor
    key: Tensor
    value: Tensor
    logits_projection: Tensor | None  # [h_k, h]
    weights_projection: Tensor | None  # [h, h_v]
    mask: Tensor | None  # [B or 1, 1, 1, M]
    causal: bool
    scale: float
    dropout: float
    seed: int

    @classmethod
    def of(cls, problem: Problem) -> Launch:
        """Make the launch of a problem; this reads the seed."""
        logits, weights = (each and each.static for each in (problem.logits_projection, problem.weights_projection))
        tensors = (problem.query, problem.key, problem.value, logits, weights, problem.mask)
        seed = seed_number(problem.dropout_seed, problem.query)
        return cls(*tensors, problem.causal, problem.scale, problem.dropout, seed)

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The inputs, in the order of the programs' arguments."""
        return self[:6]

    def options(self) -> tuple[bool, float, float, int]:
        """The fields after the inputs: causal, scale, dropout and seed."""
        return self[6:]

    @property
    def softmax_heads(self) -> int:
        """h, the number of heads after P_l."""
        return self.query.shape[2] if self.logits_projection is None else self.logits_projection.shape[1]

    def sizes(self) -> dict[str, int]:
        """The true sizes, and those that a program computes with: powers of two, at least 16 as products need."""
        true = {"HEADS_K": self.query.shape[2], "HEADS": self.softmax_heads, "HEADS_V": self.value.shape[2]}
        true |= {"KEY_SIZE": self.query.shape[3], "VALUE_SIZE": self.value.shape[3]}
        padded = (max(16, 1 << (size - 1).bit_length()) for size in true.values())
        return true | dict(zip(("H_K", "H", "H_V", "K", "V"), padded, strict=True))

    def shared_bytes(self) -> int:
        """Bytes of shared memory of the program that needs most. The first call compiles the programs."""
        return self._needs()[0]

    def tensor_columns(self) -> int:
        """Columns of tensor memory of the program that needs most; 0 if the GPU has no tensor memory."""
        return self._needs()[1]

    def _needs(self) -> tuple[int, int]:
        shapes = tuple(None if each is None else each.shape for each in self.tensors())
        with torch.cuda.device_of(self.query):
            return _needs(self.query.get_device(), self.query.dtype, shapes, self.causal, self.dropout > 0)

    def blocks(self, across: Literal["queries", "memory"]) -> int:
        """The number of programs that divide the queries, or the memory, of all examples."""
        length, block = (self.query.shape[1], ROWS) if across == "queries" else (self.key.shape[1], COLUMNS)
        return self.query.shape[0] * -(-length // block)

    def constants(self) -> dict[str, Any]:
        """The constants that the programs are compiled for."""
        module = programs()
        assert module is not None, "refused"
        wide = torch.promote_types(self.query.dtype, torch.float32)
        # the interpreter has no products of bfloat16
        factor = wide if interpreted() and self.query.dtype == torch.bfloat16 else self.query.dtype
        types = {"DTYPE": module.DTYPES[factor], "WIDE": module.DTYPES[wide]}
        return self.sizes() | types | {
            "CAUSAL": self.causal, "DROPOUT": self.dropout > 0, "ROWS": ROWS, "COLUMNS": COLUMNS,
        }  # fmt: skip

    def run(self, program: str, across: Literal["queries", "memory"], *more: Tensor | None) -> None:
        """Run a program of `triton_programs` on these tensors and on `more`, which it takes after the mask."""
        blocks = self.blocks(across)
        if blocks == 0 or has_no_data(self.query):
            return
        mask = None if self.mask is None else self.mask.view(torch.uint8)
        with torch.cuda.device_of(self.query):
            getattr(programs(), program)[(blocks,)](
                *self.tensors()[:5], mask, *more, *self.numbers(), **self.constants(), **COMPILATION
            )

    def compiled(self, program: str) -> Any:
        """The program as `run` runs it, compiled for the current device. Triton caches it for `run`."""
        wide = torch.promote_types(self.query.dtype, torch.float32)
        inputs = [None if each is None else self.query.dtype for each in self.tensors()[:5]]
        absent = {f"grad_{name}" for name in ("logits_projection", "weights_projection") if getattr(self, name) is None}
        types = {"input": self.query.dtype, "sum": wide}
        more = [None if name in absent else types[kind] for name, kind in MORE[program].items()]
        mask = None if self.mask is None else torch.uint8
        return getattr(programs(), program).warmup(
            *inputs, mask, *more, *self.numbers(), grid=(1,), **self.constants(), **COMPILATION
        )

    def numbers(self) -> tuple[int | float, ...]:
        """The numbers that the programs take after the tensors."""
        N, M = self.query.shape[1], self.key.shape[1]
        mask_stride = 0 if self.mask is None or self.mask.shape[0] == 1 else M
        dropped = (keep_threshold(self.dropout), keep_scale(self.dropout)) if self.dropout else (0, 1.0)
        return (N, M, mask_stride, self.scale, self.seed, *dropped)


@functools.cache
def _needs(
    device: int, dtype: torch.dtype, shapes: tuple[torch.Size | None, ...], causal: bool, has_dropout: bool
) -> tuple[int, int]:
    *tensors, mask = (None if shape is None else torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
    mask = None if mask is None else mask.bool()
    launch = Launch._make((*tensors, mask, causal, 1.0, 0.5 if has_dropout else 0.0, 0))
    facts = [launch.compiled(program).metadata for program in MORE]
    return max(each.shared for each in facts), max(getattr(each, "tmem_size", None) or 0 for each in facts)


def _dense(tensor: Tensor) -> Tensor:
    """Make the tensor contiguous and aligned to 16 bytes, because the programs are compiled for such tensors."""
    tensor = tensor.contiguous()
    return tensor if has_no_data(tensor) or tensor.data_ptr() % 16 == 0 else tensor.clone()


class _Mixed(torch.autograd.Function):
    """`attend` as one node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, options: tuple[bool, float, float, int], *tensors: Tensor | None) -> Tensor:
        launch = Launch._make([*(None if each is None else _dense(each) for each in tensors), *options])
        query, value = launch.query, launch.value
        B, N = query.shape[:2]
        output = value.new_empty(B, N, *value.shape[2:])
        wide = torch.promote_types(query.dtype, torch.float32)
        lse = query.new_empty(B, launch.softmax_heads, N, dtype=wide)
        launch.run("forward", "queries", output, lse)
        ctx.save_for_backward(*launch.tensors(), lse)
        ctx.options = options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, lse = ctx.saved_tensors
        launch = Launch._make([*tensors, *ctx.options])
        matrices = launch.logits_projection, launch.weights_projection
        grad_output, correction = _dense(grad_output), torch.empty_like(lse)
        grad_query, grad_key, grad_value = map(torch.empty_like, launch[:3])
        # each program writes its part of these sums, two h x h matrices for 16 rows
        blocks = launch.blocks("queries")
        parts = [None if each is None else lse.new_empty(blocks, *each.shape) for each in matrices]
        launch.run("backward_queries", "queries", lse, grad_output, correction, grad_query, *parts)
        launch.run("backward_memory", "memory", lse, grad_output, correction, grad_key, grad_value)
        sums = [None if part is None else part.sum(0).to(launch.query.dtype) for part in parts]
        return None, grad_query, grad_key, grad_value, *sums, None
