"""The one function through which all softmax attention of the project runs, and the choice of its kernel."""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

from attention.kernels import autocast, kernel_modules, reference
from attention.kernels.problem import Hook, Problem, Projection, checked_output
from attention.kernels.torch_compile import constant

__all__ = ["BACKENDS", "Projection", "attend", "check_backend", "choose"]

_MODULES = {name: import_module(module) for name, module in kernel_modules().items()}
KERNELS: dict[str, Callable[[Problem], Tensor]] = {name: module.attend for name, module in _MODULES.items()}
# these say why a kernel can't do a problem; a kernel that can do every problem has none
REFUSALS: dict[str, Callable[[Problem], str | None]] = {
    name: module.refusal for name, module in _MODULES.items() if hasattr(module, "refusal")
}
BACKENDS = ("auto", *KERNELS)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    logits_projection: Projection | None = None,
    weights_projection: Projection | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    dropout_seed: Tensor | int | None = None,
    backend: str = "auto",
    hook: Hook | None = None,
    report: Callable[[str], None] | None = None,
) -> Tensor:
    """Compute softmax attention in the order of the talking-heads paper (2003.02436), [B, N, h_v, V].

    J = QK^T scale -> mix by P_l -> + bias, mask -> softmax over M -> mix by P_w -> dropout -> V.

    The mask comes after P_l, because P_l sums over heads and would turn -inf into +inf (by a negative entry) or NaN (by
    a zero, or by entries of both signs). P_w needs no such care: if no head may attend to a position, all its weights
    are 0 before P_w and after it.

    query [B, N, h_k, K], key [B, M, h_k, K], value [B, M, h_v, V];
    logits_projection: P_l, h_k -> h; None: h = h_k. weights_projection: P_w, h -> h_v; None: h_v = h;
    bias: is added to the logits. It has four dimensions, each 1 or that of [B, h, N, M]; -inf forbids;
    mask: bool, with four dimensions like bias; True = may attend. A row that may attend nowhere gives zeros and has no
    gradient. A row whose logits all overflow to -inf is NaN, but zeros in sdpa and cuda, and in compiled where a mask
    or a bias might have hidden it. Fewer dimensions are refused, because [M, M] could mean padding [B, M] or queries
    and memory [N, M];
    causal: query n attends to memory 0..n only;
    scale: None = 1 / sqrt(K);
    dropout: probability that a weight is set to 0 after P_w; the others are divided by 1 - dropout;
    dropout_seed: decides which weights are dropped; an int64, as an integer or a tensor without dimensions. A seed
    drops the same weights in every kernel; torch's generators are neither read nor seeded. A tensor may be filled with
    a new seed for each step without recompilation by torch.compile, but only after the last step's backward pass;
    backend: auto, or the kernel that must run;
    hook: receives each stage by name and may replace it. The reference kernel then runs, because only it has all
    stages;
    report: is called with the name of the kernel that runs.

    Under autocast the products run in its dtype; the softmax is always in float32 or better. Raises ValueError for
    shapes that don't fit, a mask that isn't bool, dropout without a seed, and a backend that can't do the problem or
    returns another shape.
    """
    problem = Problem.of(
        query,
        key,
        value,
        logits_projection=logits_projection,
        weights_projection=weights_projection,
        bias=bias,
        mask=mask,
        causal=causal,
        scale=scale,
        dropout=dropout,
        dropout_seed=dropout_seed,
    )
    kernel = choose(backend, problem) if hook is None else "reference"
    if report is not None:
        report(kernel)
    with autocast.disabled(problem.query):
        heads = KERNELS[kernel](problem) if hook is None else reference.attend(problem, hook)
    return checked_output(f"backend: {kernel}", heads, [*query.shape[:2], *value.shape[2:]], "B, N, h_v, V")


def check_backend(backend: str) -> None:
    """Raises ValueError for an unknown backend."""
    if backend not in BACKENDS:
        raise ValueError(f"backend: is {backend!r}, must be one of {', '.join(BACKENDS)}")


def choose(backend: str, problem: Problem) -> str:
    """Name of the kernel to run. Raises ValueError for an unknown backend and for one that can't do the problem.

    `auto` chooses the kernel that was measured to be the fastest of those that are exact for the problem. On a GPU,
    that is torch's own where heads neither mix nor drop weights, and else `cuda` if it takes the problem.
    """
    if backend != "auto":
        check_backend(backend)
        if backend in REFUSALS and (refusal := REFUSALS[backend](problem)) is not None:
            raise ValueError(f"backend: {backend} can't do this: {refusal}; use auto, blocked or reference")
        return backend
    torch_takes_it = REFUSALS["sdpa"](problem) is None
    if torch_takes_it and _amx_is_faster(problem):
        return "sdpa"
    if REFUSALS["compiled"](problem) is None:
        return "compiled"
    if torch_takes_it and not _blocks_are_faster(problem):
        return "sdpa"
    return "cuda" if problem.query.is_cuda and REFUSALS["cuda"](problem) is None else "blocked"


def _amx_is_faster(problem: Problem) -> bool:
    """Whether torch's own kernel is faster than `compiled` on a CPU, as measured on a Xeon with AMX (docs/kernels.md).

    In 16 bits its products use AMX, which pays where a head is wide and has a long memory. `compiled` doesn't use AMX.
    """
    if problem.query.device.type != "cpu" or problem.query.dtype.itemsize != 2 or _has_trained_bias(problem):
        return False
    # causal, half of the memory counts: `compiled` leaves out the rest
    memory = problem.key.shape[1] // (2 if problem.causal else 1)
    width = min(problem.query.shape[3], problem.value.shape[3])
    return width >= 32 and memory * width > 2**14 and _has_amx()


def _blocks_are_faster(problem: Problem) -> bool:
    """Whether `blocked` is faster than torch's own kernel where both are exact, as measured (docs/kernels.md).

    torch's fused CPU kernel doesn't take a trained bias, and its fallback is slower and keeps all maps. In 16 bits
    `blocked` is faster up to about 256 memory positions (with 64 three times as fast, on a Xeon with AMX).
    """
    if problem.query.device.type == "cuda":
        return False
    return _has_trained_bias(problem) or (problem.query.dtype.itemsize == 2 and problem.key.shape[1] < 256)


def _has_trained_bias(problem: Problem) -> bool:
    return problem.bias is not None and problem.bias.requires_grad


# a constant in a compiled model, because torch.compile can't trace the call
@constant
def _has_amx() -> bool:
    return torch.cpu._is_amx_tile_supported()
