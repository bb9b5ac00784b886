"""Attention on a GPU in bfloat16, by the CUDA programs in this folder, which write no map to memory.

`mixed.py` is for heads that mix, `plain.py` for heads that don't.
"""

# B batch, N queries, M memory, K key size, V value size

from __future__ import annotations

import torch
from torch import Tensor

from attention.kernels.cuda import library, mixed, plain
from attention.kernels.cuda.launch import Plan, shared_limit
from attention.kernels.cuda.sizes import Sizes
from attention.kernels.dropout import row_keys, seed_number
from attention.kernels.problem import Problem, has_no_data
from attention.kernels.torch_compile import not_compiled


def absence(device: torch.device) -> str | None:
    """Why this kernel can't run on the device, whatever the problem, or None. Meta tensors are accepted everywhere."""
    if device.type == "meta":
        return None
    if device.type != "cuda":
        return f"it runs on a CUDA GPU, not on {device.type}"
    if not torch.cuda.is_available():
        return "torch finds no CUDA GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    return library.absence()


@not_compiled
def refusal(problem: Problem) -> str | None:
    """Why this kernel can't do the problem, or None."""
    query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
    reason = absence(query.device)
    if reason is not None:
        return reason
    projections = [each for each in (problem.logits_projection, problem.weights_projection) if each is not None]
    static = [each.static for each in projections if each.static is not None]
    if len(static) < len(projections):
        return "it mixes heads by static projections only"
    if problem.bias is not None:
        return "it takes no bias on the logits"
    if mask is not None and mask.shape[1:] != (1, 1, key.shape[1]):
        return "it takes a mask of memory positions only, [B, 1, 1, M]"
    if others := {str(each.dtype) for each in (query, key, value, *static) if each.dtype != torch.bfloat16}:
        return f"it computes in bfloat16, not in {' and '.join(sorted(others))}"
    if query.shape[-1] % 8 or value.shape[-1] % 8 or 0 in (*query.shape, *value.shape):
        return "it needs a key size and a value size that are multiples of 8, and at least one example and position"
    if problem.scale <= 0:
        return f"it needs a positive scale, not {problem.scale}"
    plan = _plan(problem)
    return plan if isinstance(plan, str) else None


@not_compiled
def attend(problem: Problem) -> Tensor:
    """Compute the same as the reference, including gradients.

    Factors of products are in bfloat16, also the maps and their gradients; sums and the softmax are in float32. There
    are no atomic additions, so the same inputs give the same bits. A second derivative raises torch's RuntimeError.
    """
    query, value, keys = problem.query, problem.value, None
    if problem.dropout_seed is not None and not has_no_data(query):
        shape = (query.shape[0], value.shape[2], query.shape[1])
        keys = row_keys(seed_number(problem.dropout_seed, query), shape, query.device)
    mask = None if problem.mask is None else problem.mask.contiguous()
    arguments = (_plan(problem), problem.scale, problem.dropout, mask, keys, query, problem.key, value)
    if _mixes(problem):
        return mixed.Mixed.apply(*arguments, *mixed.projections(problem))
    return plain.Plain.apply(*arguments)


def _plan(problem: Problem) -> Plan | str:
    """The plan of the programs that compute the problem, or the reason why they can't."""
    plan = mixed.plan if _mixes(problem) else plain.plan
    return plan(Sizes.of(problem), shared_limit(problem.query.device))


def _mixes(problem: Problem) -> bool:
    return problem.logits_projection is not None or problem.weights_projection is not None
