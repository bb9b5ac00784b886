"""torch's scaled_dot_product_attention: fused, for heads that don't mix."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from attention.kernels.problem import Case


def refusal(case: Case) -> str | None:
    """Why this kernel can't do the case, or None."""
    if case.logits_projection is not None or case.weights_projection is not None:
        return "it can't mix heads (a logits or weights projection is given)"
    if case.query.shape[-1] == 0:
        return "it needs a key size of at least 1"
    return None


def attend(case: Case) -> Tensor:
    """softmax(QK^T scale + bias, masked) V, by whichever of torch's own kernels takes the arguments."""
    allowed, empty = case.permitted()
    mask = allowed if case.mask is not None else None
    if case.bias is not None:
        mask = case.bias.to(case.query.dtype)
        mask = mask if allowed is None else mask.masked_fill(~allowed, float("-inf"))
    if mask is not None and empty is not None:
        # a row that may attend nowhere is NaN in some of torch's kernels: open it, and take its result away
        mask = mask.masked_fill(empty, True if mask.dtype == torch.bool else 0.0)
    output = functional.scaled_dot_product_attention(
        case.query.transpose(1, 2),
        case.key.transpose(1, 2),
        case.value.transpose(1, 2),
        attn_mask=mask,
        dropout_p=case.dropout,
        is_causal=case.causal and mask is None,
        scale=case.scale,
    )
    return (output if empty is None else output.masked_fill(empty, 0.0)).transpose(1, 2)
