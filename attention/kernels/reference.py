"""The equations of the papers in plain einsum: slow, any dtype, and what every other kernel is tested against."""

# b batch, n query, m memory, k key size, v value size, h heads, g heads after mixing

from __future__ import annotations

import functools

import torch
from torch import Tensor

from attention.kernels.dropout import drop
from attention.kernels.problem import Hook, Problem, Projection, unchanged


def attend(problem: Problem, hook: Hook = unchanged) -> Tensor:
    """J = QK^T -> P_l -> bias, mask -> softmax -> P_w -> dropout -> V (2003.02436, the pseudo-code), [B, N, h_v, V].

    Products in the dtype of the inputs, the softmax at least in float32. Autograd keeps every map. Every intermediate
    result goes through `hook`, which may look at it or change it: to read maps, or to gate heads.
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
        # a row of -inf alone has no softmax: give it any, then take it away
        logits = logits.masked_fill(empty, 0.0)
    weights = logits.softmax(-1).to(problem.value.dtype)
    if empty is not None:
        weights = weights.masked_fill(empty, 0.0)
    weights = mix(hook("weights", weights), problem.weights_projection)
    weights = drop(hook("mixed_weights", weights), problem)
    return hook("outputs", torch.einsum("bhnm,bmhv->bnhv", weights, problem.value))


def mix(maps: Tensor, projection: Projection | None) -> Tensor:
    """[B, h_in, N, M] -> [B, h_out, N, M]: every map becomes a combination of all maps."""
    if projection is None:
        return maps
    equations = ("bhnm,hg->bgnm", "bhnm,bnhg->bgnm", "bhnm,bmhg->bgnm")
    mixed = [torch.einsum(e, maps, term) for e, term in zip(equations, projection, strict=True) if term is not None]
    return functools.reduce(torch.add, mixed)
