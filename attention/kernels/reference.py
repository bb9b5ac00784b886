"""The equations of the papers in plain einsum, for any dtype: slow, but what every other kernel is tested against."""

# b batch, n query, m memory, k key size, v value size, h heads, g heads after mixing

from __future__ import annotations

import functools

import torch
from torch import Tensor

from attention.kernels.dropout import drop
from attention.kernels.problem import Hook, Problem, Projection, unchanged


def attend(problem: Problem, hook: Hook = unchanged) -> Tensor:
    """J = QK^T -> P_l -> bias, mask -> softmax -> P_w -> dropout -> V (2003.02436, the pseudo-code), [B, N, h_v, V].

    Products are in the dtype of the inputs, and the softmax is in float32 or better. Autograd keeps every map. Every
    intermediate result goes through `hook`, which may read or change it, for example to collect maps or to gate heads.
    """
    logits = hook("logits", torch.einsum("bnhk,bmhk->bhnm", problem.query, problem.key) * problem.scale)
    logits = mix(logits, problem.logits_projection)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if problem.bias is not None:
        logits = logits + problem.bias
    logits = hook("mixed_logits", logits)
    allowed, empty = problem.permitted()
    if allowed is not None:
        logits = logits.masked_fill(~allowed, float("-inf"))
    if empty is not None:
        # a row of only -inf has no softmax: compute that of zeros, and set it to 0 below
        logits = logits.masked_fill(empty, 0.0)
    weights = logits.softmax(-1).to(problem.value.dtype)
    if empty is not None:
        weights = weights.masked_fill(empty, 0.0)
    weights = mix(hook("weights", weights), problem.weights_projection)
    weights = drop(hook("mixed_weights", weights), problem)
    return hook("outputs", torch.einsum("bhnm,bmhv->bnhv", weights, problem.value))


def mix(maps: Tensor, projection: Projection | None) -> Tensor:
    """Mix heads, [B, h_in, N, M] -> [B, h_out, N, M]: each map becomes a combination of all maps."""
    if projection is None:
        return maps
    equations = ("bhnm,hg->bgnm", "bhnm,bnhg->bgnm", "bhnm,bmhg->bgnm")
    mixed = [torch.einsum(e, maps, term) for e, term in zip(equations, projection, strict=True) if term is not None]
    return functools.reduce(torch.add, mixed)
