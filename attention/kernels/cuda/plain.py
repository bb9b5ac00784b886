"""Heads that don't mix, on a GPU, by `plain.cu`, which writes no map to memory.

torch's own kernels are faster, but their dropout draws from a global generator.
"""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attention.kernels.cuda.launch import TOO_LITTLE_SHARED_MEMORY, Launch, Plan, dense
from attention.kernels.cuda.sizes import Sizes

X_TILES = 4  # of 16 x, one for each warp
LARGEST_SIZE = 128  # of a key or a value: the sums of two gradients are in registers


@functools.cache
def plan(sizes: Sizes, shared_limit: int) -> Plan | str:
    """The plan for these sizes, or the reason why there is none."""
    if max(sizes.key_size, sizes.value_size) > LARGEST_SIZE:
        return f"it has registers for keys and values of size {LARGEST_SIZE}, where heads don't mix"
    # fewer y at a time for larger heads, which need more registers
    y_tiles = 8 if max(sizes.key_size, sizes.value_size) <= 64 else 4
    X, Y = 16 * X_TILES, 8 * y_tiles
    key_row, value_row = 2 * sizes.key_width + 16, 2 * sizes.value_width + 16
    tiles = 2 * Y * (key_row + value_row)
    both = X * (key_row + value_row) + tiles
    shared_bytes = {
        "plain_output": X * key_row + tiles,
        "plain_query_gradient": both,
        # a key of the dropout and two numbers of each query
        "plain_memory_gradient": both + 2 * Y * 16,
    }
    if max(shared_bytes.values()) > shared_limit:
        return TOO_LITTLE_SHARED_MEMORY
    return Plan("plain.cu", sizes.constants(X_TILES, y_tiles), 32 * X_TILES, X, shared_bytes)


class Plain(torch.autograd.Function):
    """Attention without mixing as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, scale: float, dropout: float, mask: Tensor | None, keys: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        """tensors: query [B, N, H, K], key [B, M, H, K], value [B, M, H, V]. keys: of the dropout, [B, H, N]."""
        query, key, value = map(dense, tensors)
        B, N, H = query.shape[:3]
        output, lse = value.new_empty(B, N, *value.shape[2:]), query.new_empty(B, H, N, dtype=torch.float32)
        inputs = {"query": query, "key": key, "value": value, "mask": mask, "dropout_keys": keys}
        launch = Launch(plan, scale, dropout, **inputs)
        launch("plain_output", plan.blocks(B * H, N), lse=lse, output=output)
        ctx.save_for_backward(output, lse, *inputs.values())
        ctx.names, ctx.options = tuple(inputs), (plan, scale, dropout)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key and value."""
        output, lse, *saved = ctx.saved_tensors
        inputs = dict(zip(ctx.names, saved, strict=True))
        plan, scale, dropout = ctx.options
        (B, N, H), M = inputs["query"].shape[:3], inputs["key"].shape[1]
        grad_output = dense(grad_output)
        # of all weights W of a query, the sum of W dW
        correction = (output.float() * grad_output).sum(-1).transpose(1, 2).contiguous()
        query, key, value = (torch.empty_like(inputs[name]) for name in ("query", "key", "value"))
        launch = Launch(plan, scale, dropout, **inputs)
        numbers = {"lse": lse, "correction": correction, "grad_output": grad_output}
        launch("plain_query_gradient", plan.blocks(B * H, N), **numbers, grad_query=query)
        launch("plain_memory_gradient", plan.blocks(B * H, M), **numbers, grad_key=key, grad_value=value)
        return None, None, None, None, None, query, key, value
