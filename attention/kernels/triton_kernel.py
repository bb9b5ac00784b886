"""Mixed heads on a GPU by programs of our own: memory for inputs, outputs and two sums a row, for no map at all.

The programs are in `triton_programs`; that module needs Triton, so it is imported when it is first asked for.
"""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable

from attention.kernels.problem import Case

# Query rows of a tile, and its memory positions: the least that a product on tensor cores takes, for a tile has all
# heads, and three maps and a sum are alive at once. With 32 heads of 32 and 8 warps a map in float32 takes 32 of a
# thread's 255 registers and a sum of vectors 64: compiled for Hopper, the forward spills none, the backward 200 bytes
ROWS = COLUMNS = 16
WARPS = 8


def absence(device: torch.device) -> str | None:
    """Why this kernel can't run on the device, whatever the case, or None. Shapes without data go through anywhere."""
    if device.type == "meta" or interpreted():
        return None
    if device.type != "cuda":
        return f"it runs on a CUDA GPU, not on {device.type}"
    if programs() is None:
        return "Triton isn't installed: it comes with torch for CUDA, on Linux"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    return None


@torch.compiler.disable
def refusal(case: Case) -> str | None:
    """Why this kernel can't do the case, or None."""
    query, value, mask = case.query, case.value, case.mask
    reason = absence(query.device)
    if reason is not None:
        return reason
    if any(each is not None and each.static is None for each in (case.logits_projection, case.weights_projection)):
        return "it mixes heads by static projections only"
    if case.bias is not None:
        return "it takes no bias on the logits"
    if mask is not None and mask.shape[1:] != (1, 1, case.key.shape[1]):
        return "it takes a mask of memory positions only, [B, 1, 1, M]"
    if query.shape[-1] == 0 or value.shape[-1] == 0:
        return "it needs a key size and a value size of at least 1"
    problem = Problem.of(case, seed=0)
    dtypes = {each.dtype for each in problem.tensors()[:5] if each is not None}
    if len(dtypes) > 1:
        return f"its tensors must be of one type, not {' and '.join(sorted(map(str, dtypes)))}"
    # float64 is for comparing the programs with the reference, in the interpreter
    allowed = (torch.float32, torch.bfloat16, torch.float16, *([] if query.is_cuda else [torch.float64]))
    if query.dtype not in allowed:
        return f"it computes in float32, bfloat16 or float16, not in {query.dtype}"
    if query.is_cuda and not interpreted():
        needed, limit = problem.shared_bytes(), _shared_limit(query.get_device())
        if needed > limit:
            return f"its tiles need {needed:,} bytes of shared memory, and a program has {limit:,} on this GPU"
    return None


@torch.compiler.disable
def attend(case: Case) -> Tensor:
    """As the reference, gradients included; for the backward, the inputs and one sum a row and head are kept.

    Products are in the dtype of the inputs, sums and the softmax in float32. Nothing is added atomically: the same
    inputs give the same bits. The gradients have no gradients: a second derivative raises torch's RuntimeError.
    """
    # drawn from the global generator, so that its seed decides the dropout here as in any other layer
    seed = int(torch.randint(2**62, (), device="cpu")) if case.dropout and not _has_no_data(case.query) else 0
    problem = Problem.of(case, seed)
    return _Mixed.apply(problem.options(), *problem.tensors())


@functools.cache
def programs() -> ModuleType | None:
    """The module of the programs, or None where Triton isn't installed."""
    try:
        from attention.kernels import triton_programs
    except ImportError:
        return None
    return triton_programs


def interpreted() -> bool:
    """Whether Triton interprets the programs on the CPU: TRITON_INTERPRET=1 from before it is first imported."""
    module = programs()
    return module is not None and not isinstance(module.forward, module.triton.JITFunction)


@functools.cache
def _shared_limit(device: int) -> int:
    """Shared memory that a program can have on a GPU."""
    module = programs()
    assert module is not None, "refused"
    return int(module.triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"])


def _has_no_data(tensor: Tensor) -> bool:
    """Whether only the shapes are wanted, as for a prediction of the memory."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


class Problem(NamedTuple):
    """A case that isn't refused, as the programs are told it."""

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
    def of(cls, case: Case, seed: int) -> Problem:
        logits, weights = (each and each.static for each in (case.logits_projection, case.weights_projection))
        tensors = (case.query, case.key, case.value, logits, weights, case.mask)
        return cls(*tensors, case.causal, case.scale, case.dropout, seed)

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self[:6]

    def options(self) -> tuple[bool, float, float, int]:
        return self[6:]

    @property
    def softmax_heads(self) -> int:
        return self.query.shape[2] if self.logits_projection is None else self.logits_projection.shape[1]

    def sizes(self) -> dict[str, int]:
        """The true sizes, and those that a program computes with: powers of two, at least a product's 16."""
        true = {"HEADS_K": self.query.shape[2], "HEADS": self.softmax_heads, "HEADS_V": self.value.shape[2]}
        true |= {"KEY_SIZE": self.query.shape[3], "VALUE_SIZE": self.value.shape[3]}
        padded = (max(16, 1 << (size - 1).bit_length()) for size in true.values())
        return true | dict(zip(("H_K", "H", "H_V", "K", "V"), padded, strict=True))

    def shared_bytes(self) -> int:
        """An upper bound of the shared memory that a program takes, tested against what the compiler asks for.

        Factors of products lie there: tiles of Q, K, dO and V, up to three maps, P_l both ways and P_w; and two sums a
        row. For 24 heads of 32 in bf16, padded to 32 heads: 4 x 32 KiB + 3 x 16 KiB + 3 x 2 KiB + 4 KiB.
        """
        sizes = self.sizes()
        heads = max(sizes["H_K"], sizes["H"], sizes["H_V"])
        vectors = (ROWS + COLUMNS) * (sizes["H_K"] * sizes["K"] + sizes["H_V"] * sizes["V"])
        factors = vectors + 3 * heads * ROWS * COLUMNS + 3 * heads**2
        return factors * self.query.dtype.itemsize + 2 * heads * ROWS * 4

    def blocks(self, across: Literal["queries", "memory"]) -> int:
        """Programs that share the queries, or the memory, of all examples."""
        length, block = (self.query.shape[1], ROWS) if across == "queries" else (self.key.shape[1], COLUMNS)
        return self.query.shape[0] * -(-length // block)

    def constants(self) -> dict[str, Any]:
        """What the programs are compiled for."""
        module = programs()
        assert module is not None, "refused"
        wide = torch.promote_types(self.query.dtype, torch.float32)
        # the interpreter has no products of bfloat16
        factor = wide if interpreted() and self.query.dtype == torch.bfloat16 else self.query.dtype
        types = {"DTYPE": module.DTYPES[factor], "WIDE": module.DTYPES[wide]}
        return self.sizes() | types | {
            "CAUSAL": self.causal, "DROPOUT": self.dropout > 0, "ROWS": ROWS, "COLUMNS": COLUMNS,
        }  # fmt: skip

    def launch(self, program: str, across: Literal["queries", "memory"], *more: Tensor | None) -> None:
        """Run a program of `triton_programs` on these tensors and `more`, those that it takes after the mask."""
        blocks = self.blocks(across)
        if blocks == 0 or _has_no_data(self.query):
            return
        N, M, mask = self.query.shape[1], self.key.shape[1], self.mask
        kept = min(max(round((1 - self.dropout) * 2**24), 1), 2**24)
        numbers = (N, M, 0 if mask is None or mask.shape[0] == 1 else M, self.scale, self.seed, kept, 2**24 / kept)
        inputs = (*self.tensors()[:5], None if mask is None else mask.view(torch.uint8))
        with torch.cuda.device_of(self.query):
            getattr(programs(), program)[(blocks,)](
                *inputs, *more, *numbers, **self.constants(), num_warps=WARPS, num_stages=1
            )


class _Mixed(torch.autograd.Function):
    """`attend` as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, options: tuple[bool, float, float, int], *tensors: Tensor | None) -> Tensor:
        problem = Problem._make([*(None if each is None else each.contiguous() for each in tensors), *options])
        query, value = problem.query, problem.value
        B, N = query.shape[:2]
        output = value.new_empty(B, N, *value.shape[2:])
        wide = torch.promote_types(query.dtype, torch.float32)
        lse = query.new_empty(B, problem.softmax_heads, N, dtype=wide)
        problem.launch("forward", "queries", output, lse)
        ctx.save_for_backward(*problem.tensors(), lse)
        ctx.options = options
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, lse = ctx.saved_tensors
        problem = Problem._make([*tensors, *ctx.options])
        matrices = problem.logits_projection, problem.weights_projection
        grad_output, correction = grad_output.contiguous(), torch.empty_like(lse)
        grad_query, grad_key, grad_value = map(torch.empty_like, problem[:3])
        # each program writes its part of these sums: two h x h matrices for 16 rows
        blocks = problem.blocks("queries")
        parts = [None if each is None else lse.new_empty(blocks, *each.shape) for each in matrices]
        problem.launch("backward_queries", "queries", lse, grad_output, correction, grad_query, *parts)
        problem.launch("backward_memory", "memory", lse, grad_output, correction, grad_key, grad_value)
        sums = [None if part is None else part.sum(0).to(problem.query.dtype) for part in parts]
        return None, grad_query, grad_key, grad_value, *sums, None
