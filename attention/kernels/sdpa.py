"""torch's scaled_dot_product_attention: fused, for heads that don't mix."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from attention.kernels.problem import Problem


def refusal(problem: Problem) -> str | None:
    """Why this kernel can't do the problem, or None."""
    if problem.logits_projection is not None or problem.weights_projection is not None:
        return "it can't mix heads (a logits or weights projection is given)"
    # torch 2.11 ends the process if there is no head
    if problem.query.shape[2] == 0:
        return "it needs at least one head"
    if problem.query.shape[3] == 0:
        return "its logits are dot products of queries and keys, and here the key size is 0, as in additive attention"
    if problem.dropout > 0:
        return "its dropout draws from torch's global generator, not from a seed"
    return None


def attend(problem: Problem) -> Tensor:
    """Compute softmax(QK^T scale + bias, masked) V, [B, N, h_v, V], by one of torch's own kernels."""
    allowed, empty = problem.permitted()
    mask = allowed if problem.mask is not None else None
    if problem.bias is not None:
        mask = problem.bias.to(problem.query.dtype)
        mask = mask if allowed is None else mask.masked_fill(~allowed, float("-inf"))
    if mask is not None and empty is not None:
        # a row that may attend nowhere is NaN in some of torch's kernels: let it attend, and set its result to 0 below
        mask = mask.masked_fill(empty, True if mask.dtype == torch.bool else 0.0)
    output = functional.scaled_dot_product_attention(
        problem.query.transpose(1, 2),
        problem.key.transpose(1, 2),
        problem.value.transpose(1, 2),
        attn_mask=mask,
        is_causal=problem.causal and mask is None,
        scale=problem.scale,
    )
    return (output if empty is None else output.masked_fill(empty, 0.0)).transpose(1, 2)
