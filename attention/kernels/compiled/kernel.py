"""Attention on a CPU, by the C++ sources in this folder, which are built at first use (`library.py`).

If there is no compiler, or it fails, `refusal` says so, and `auto` computes in blocks instead.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention.kernels.compiled import library
from attention.kernels.dropout import keep_scale, keep_threshold, seed_number
from attention.kernels.problem import Problem
from attention.kernels.torch_compile import constant, operator

TYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float64: 2}
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
    if 0 in query.shape[:3] or 0 in problem.value.shape:
        return "it needs at least one example, position, head and value"
    return absence()


# a constant in a compiled model, because torch.compile can't trace the run of a compiler
@constant
def absence() -> str | None:
    """Why this kernel can't run on this machine, whatever the problem, or None.

    If there is a reason, `auto` computes in blocks, which is several times slower; a run can report the reason.
    """
    return library.loaded().absence


def attend(problem: Problem) -> Tensor:
    """Compute the same as the reference, including gradients, and keep only the inputs for the backward pass.

    Sums are in float32 or better. The same number of threads gives the same bits. A second derivative raises
    RuntimeError.
    """
    logits, weights = (each and each.static for each in (problem.logits_projection, problem.weights_projection))
    bias = None if problem.bias is None else problem.bias.to(problem.query.dtype)
    if bias is not None and bias.requires_grad:
        # its gradient is computed for each softmax head, query and memory position
        heads = problem.query.shape[2] if logits is None else logits.shape[1]
        bias = bias.expand(-1, heads, problem.query.shape[1], problem.key.shape[1])
    tensors = (problem.query, problem.key, problem.value, logits, weights, bias, problem.mask, problem.dropout_seed)
    return _attend(*tensors, problem.causal, problem.scale, problem.dropout)


# An operator takes tensors and numbers but no tuples of them, so its arguments are the fields of the problem
@operator("attention::compiled")
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


@torch.library.register_fake("attention::compiled")
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    return value.new_empty(*query.shape[:2], *value.shape[2:])


@operator("attention::compiled_backward")
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
    trains_bias: bool,
) -> list[Tensor]:
    """The gradients of query, key, value, P_l, P_w and the bias; without dimensions for what has none."""
    tensors = _Tensors(query, key, value, logits_projection, weights_projection, bias, mask, dropout_seed)
    arguments = _Arguments(tensors, causal, scale, dropout, trains_bias)
    sum_dtype = torch.promote_types(query.dtype, torch.float32)
    grads = {
        f"grad_{name}": torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for name, tensor in (("query", query), ("key", key), ("value", value))
    }
    projections = {"logits_projection": logits_projection, "weights_projection": weights_projection}
    for name, matrix in projections.items():
        shape = (0,) if matrix is None else (arguments.batch, *matrix.shape)
        grads[f"grad_{name}"] = torch.zeros(shape, dtype=sum_dtype)
    if trains_bias:
        assert bias is not None
        grads["grad_bias"] = torch.zeros(bias.shape, dtype=sum_dtype)
    arguments.run(grad_output=grad_output.contiguous(), **grads)
    summed = [grads[f"grad_{name}"].sum(0).to(query.dtype) for name in projections]
    summed.append(grads["grad_bias"].to(query.dtype) if trains_bias else query.new_empty(()))
    return [grads["grad_query"], grads["grad_key"], grads["grad_value"], *summed]


@torch.library.register_fake("attention::compiled_backward")
def _(grad_output: Tensor, *inputs: Any) -> list[Tensor]:
    query, key, value, logits, weights, bias = inputs[:6]
    summed = [query.new_empty(() if tensor is None else tensor.shape) for tensor in (logits, weights)]
    summed.append(query.new_empty(bias.shape if inputs[-1] else ()))
    return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (query, key, value)] + summed


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    count = len(_Tensors._fields)
    ctx.save_for_backward(*inputs[:count])
    ctx.settings = inputs[count:]


def _backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
    has_gradient = [*3 * [True], *(each is not None for each in ctx.saved_tensors[3:5]), ctx.needs_input_grad[5]]
    grads = _gradients(grad_output, *ctx.saved_tensors, *ctx.settings, ctx.needs_input_grad[5])
    # mask, seed and the three settings have no gradient
    return (*(grad if has else None for grad, has in zip(grads, has_gradient, strict=True)), *5 * [None])


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("the compiled kernel has no second derivative; use backend=reference")


torch.library.register_autograd("attention::compiled", _backward, setup_context=_save_inputs)
torch.library.register_autograd("attention::compiled_backward", _refuse)


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
SETTINGS = ("causal", "threads", "groups", "shared_groups", "examples_share_bias", "has_dropout", "keep_threshold")
CONTIGUOUS = ("query", "key", "value", "logits_projection", "weights_projection")


class _Arguments(ctypes.Structure):
    """The struct `Problem` of `problem.h`, field by field."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*SIZES, *SETTINGS)),
        *((name, ctypes.c_double) for name in ("scale", "keep_scale")),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in (*CONTIGUOUS, "bias", "mask")),
        *((name, 4 * ctypes.c_int64) for name in ("bias_strides", "mask_strides")),
        *((name, ctypes.c_void_p) for name in ("workspace", "output", "grad_output")),
        *((f"grad_{name}", ctypes.c_void_p) for name in (*CONTIGUOUS, "bias")),
    )

    def __init__(
        self, tensors: _Tensors, causal: bool, scale: float, dropout: float, trains_bias: bool = False
    ) -> None:
        super().__init__(causal=causal, scale=scale, threads=torch.get_num_threads())
        self.batch, self.queries, self.key_heads, self.key_size = tensors.query.shape
        _, self.memory, self.value_heads, self.value_size = tensors.value.shape
        logits, weights = tensors.logits_projection, tensors.weights_projection
        self.softmax_heads = self.key_heads if logits is None else logits.shape[1]
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
        # by its shape: a bias that was expanded over the batch has a gradient for each example
        self.examples_share_bias = tensors.bias is not None and tensors.bias.shape[0] == 1
        in_turn = trains_bias and self.batch > 1 and bool(self.examples_share_bias)
        self._divide_among_threads(logits is not None or weights is not None, in_turn)
        contiguous = {name: getattr(tensors, name) for name in CONTIGUOUS}
        contiguous = {name: None if tensor is None else tensor.contiguous() for name, tensor in contiguous.items()}
        self._point_to(bias=tensors.bias, mask=tensors.mask, **contiguous)

    def _divide_among_threads(self, mixes: bool, in_turn: bool) -> None:
        """Set the number of groups of heads in an example, and how many of the last groups all threads share.

        in_turn: the examples of a head are computed one after another, as they add to the gradient of one bias.
        """
        heads = self.softmax_heads * (1 if in_turn else self.batch)
        shares = self.softmax_heads * self.queries * self.memory >= SHARED_WEIGHTS
        if not mixes and not (shares and heads % self.threads and heads < HEADS_PER_THREAD * self.threads):
            self.groups = self.softmax_heads
        elif in_turn:
            self.groups, self.shared_groups = 1, self.batch if self.threads > 1 else 0
        else:
            self.groups, self.shared_groups = 1, self.batch % self.threads if shares else 0

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
        self._functions().attend(ctypes.byref(self), TYPE_CODES[self.dtype], int(backward))

    def workspace_bytes(self, backward: bool) -> int:
        """Bytes that a run takes besides its tensors; at most about 12 times those of its queries, keys and values.

        Heads that are narrower than a vector count as wide as one, because they are padded.
        """
        return int(self._functions().workspace_bytes(ctypes.byref(self), TYPE_CODES[self.dtype], int(backward)))

    def _functions(self) -> ctypes.CDLL:
        functions = library.loaded().functions
        assert functions is not None, "refused"
        return functions
