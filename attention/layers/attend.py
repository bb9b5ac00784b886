"""The one function through which all softmax attention of the project runs, and the choice of its kernel."""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import torch
from torch import Tensor

from attention.kernels import autocast, compiled, kernel_modules, reference, sdpa
from attention.kernels.compiler import constant
from attention.kernels.problem import Hook, Problem, Projection

__all__ = ["BACKENDS", "Projection", "attend", "check_backend", "choose"]

_MODULES = {name: import_module(module) for name, module in kernel_modules().items()}
KERNELS: dict[str, Callable[[Problem], Tensor]] = {name: module.attend for name, module in _MODULES.items()}
# why a kernel can't do a problem; one that can do all has none
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
    """Softmax attention in the order of the talking-heads paper (2003.02436), [B, N, h_v, V].

    J = QK^T scale -> mix by P_l -> + bias, mask -> softmax over M -> mix by P_w -> dropout -> V.

    The mask comes after P_l because before it -inf would lose its meaning: P_l sums over heads, and makes of it +inf by
    a negative entry, NaN by a zero or by entries of both signs. P_w is harmless: it mixes weights, and those of a
    position that no head may attend to are 0 before it and after it.

    query [B, N, h_k, K], key [B, M, h_k, K], value [B, M, h_v, V];
    logits_projection: P_l, h_k -> h; None: h = h_k. weights_projection: P_w, h -> h_v; None: h_v = h;
    bias: added to the logits; four dimensions, each 1 or that of [B, h, N, M]; -inf forbids;
    mask: bool, of four dimensions likewise, True = may attend; a row that may attend nowhere gives zeros and no
    gradient. Fewer dimensions are refused, as [M, M] could be padding [B, M] or queries and memory [N, M];
    causal: query n attends to memory 0..n only;
    scale: None = 1 / sqrt(K);
    dropout: probability that a weight is set to 0 after P_w, the others growing by 1 / (1 - dropout);
    dropout_seed: which weights those are, as an integer or an int64 tensor without dimensions. A seed drops the same
    weights in every kernel; torch's generators are neither read nor seeded. A tensor may be filled with a new seed for
    each step without torch.compile noticing, but only after the backward of the last;
    backend: auto, or the kernel that must run;
    hook: receives each stage by name and may replace it; the reference kernel then runs, as no other has all stages;
    report: is called with the name of the kernel that runs.

    Under autocast the products run in its dtype; the softmax computes in float32 or better always. Raises ValueError
    for shapes that don't fit, a mask that isn't bool, dropout without a seed, and a backend that can't do the problem.
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
        return KERNELS[kernel](problem) if hook is None else reference.attend(problem, hook)


def check_backend(backend: str, refusals: Mapping[str, str | None]) -> None:
    """Raises ValueError for an unknown backend, and for one with a reason in `refusals` why it can't do the problem."""
    if backend not in BACKENDS:
        raise ValueError(f"backend: is {backend!r}, must be one of {', '.join(BACKENDS)}")
    refusal = refusals.get(backend)
    if refusal is not None:
        raise ValueError(f"backend: {backend} can't do this: {refusal}; use auto, blocked or reference")


def choose(backend: str, problem: Problem) -> str:
    """Name of the kernel to run. Raises ValueError for an unknown backend and for one that can't do the problem.

    `auto` takes only what was measured: not triton, which has run in Triton's interpreter but on no GPU yet.
    """
    if backend != "auto":
        check_backend(backend, {backend: REFUSALS[backend](problem)} if backend in REFUSALS else {})
        return backend
    if not _products_are_faster(problem) and compiled.refusal(problem) is None:
        return "compiled"
    return "blocked" if sdpa.refusal(problem) is not None or _blocks_are_faster(problem) else "sdpa"


def _blocks_are_faster(problem: Problem) -> bool:
    """Whether `blocked` beats torch's own kernel where both are exact, as measured (docs/kernels.md).

    The fused CPU kernel doesn't take a trained bias, and what it falls back to is slower and keeps all maps. In 16 bits
    `blocked` beats it to about 256 memory positions (at 64 by three times, on a Xeon with AMX).
    """
    if problem.query.device.type == "cuda":
        return False
    trained_bias = problem.bias is not None and problem.bias.requires_grad
    return trained_bias or (problem.query.dtype.itemsize == 2 and problem.key.shape[1] < 256)


def _products_are_faster(problem: Problem) -> bool:
    """Whether to expect torch's products to beat the compiled kernel: in 16 bits with AMX, which it doesn't use.

    Without AMX nothing was faster (docs/kernels.md). Where heads mix, large products are a small part of the time.
    """
    mixes = problem.logits_projection is not None or problem.weights_projection is not None
    return not mixes and problem.query.dtype.itemsize == 2 and _has_amx()


# a constant of a compiled model, which could not trace the question
@constant
def _has_amx() -> bool:
    return torch.cpu._is_amx_tile_supported()
