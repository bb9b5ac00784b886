"""Mixed heads on a GPU, by `mixed.cu`.

A forward pass keeps one number for each query and head. The backward pass computes the maps again, in four programs:
the sums of W dW, the gradients of the queries, of the keys and of the values.
"""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attention.kernels.cuda.launch import TOO_LITTLE_SHARED_MEMORY, Launch, Plan, dense
from attention.kernels.cuda.sizes import Sizes
from attention.kernels.problem import Problem

# tiles of 16 x and of 8 y, the faster first: with more x a row of y is loaded less often
TILES = ((2, 4), (1, 4), (1, 2))
LARGEST_WIDTH = 1024  # numbers of a row of all heads: their sums are in registers, 128 of a thread's 255 for this width


@functools.cache
def plan(sizes: Sizes, shared_limit: int) -> Plan | str:
    """The plan with the first of TILES that fit into the shared memory, or the reason why there is none."""
    if max(sizes.key_heads * sizes.key_width, sizes.value_heads * sizes.value_width) > LARGEST_WIDTH:
        return f"it has registers for {LARGEST_WIDTH} numbers of all heads of a position"
    for x_tiles, y_tiles in TILES:
        shared_bytes = _shared_bytes(sizes, x_tiles, y_tiles)
        if max(shared_bytes.values()) <= shared_limit:
            constants = sizes.constants(x_tiles, y_tiles)
            return Plan("mixed.cu", constants, 32 * x_tiles * y_tiles, 16 * x_tiles, shared_bytes)
    return TOO_LITTLE_SHARED_MEMORY


def _shared_bytes(sizes: Sizes, x_tiles: int, y_tiles: int) -> dict[str, int]:
    """Shared memory of each program. Maps are there for all heads of the values, or for eight heads of the keys."""
    X, Y = 16 * x_tiles, 8 * y_tiles
    G_K, G, G_V = (-(-heads // 8) for heads in sizes[:3])
    key_row, value_row = 2 * sizes.key_heads * sizes.key_width + 16, 2 * sizes.value_heads * sizes.value_width + 16
    P_l, P_w, eight_maps = 128 * G_K * G, 128 * G * G_V, 16 * X * Y
    values = X * key_row + Y * (key_row + value_row) + G_V * eight_maps + P_l + P_w
    both = (X + Y) * (key_row + value_row)
    gradients = both + eight_maps + 2 * P_l + P_w
    # a number of each head of X or Y queries; the numbers of all threads, at the end
    of_x, of_y, statistics = 32 * X * G, 32 * Y * G, 512 * x_tiles * y_tiles * G
    return {
        "sums": max((X + 2 * Y) * key_row + P_l, 2 * statistics),
        "output": values + of_x,
        "value_gradient": values + of_y,
        "correction": max(both + P_l + P_w + of_x, statistics, 512 * -(-G // 2) * G_V),
        "query_gradient": max(gradients + 2 * of_x, 512 * -(-G_K // 2) * G),
        "key_gradient": gradients + 2 * of_y,
    }


def projections(problem: Problem) -> tuple[Tensor, Tensor]:
    """P_l [h_k, h] and P_w [h, h_v]; one that the problem doesn't have is the identity."""
    given = (each and each.static for each in (problem.logits_projection, problem.weights_projection))
    # not kept from one problem to the next: one that is made where tensors have no data has none either
    identity = functools.partial(torch.eye, Sizes.of(problem).heads, dtype=torch.bfloat16, device=problem.query.device)
    logits, weights = (identity() if each is None else each for each in given)
    return logits, weights


class Mixed(torch.autograd.Function):
    """Attention with mixed heads as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, scale: float, dropout: float, mask: Tensor | None, keys: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        """tensors: query, key, value, P_l, P_w. keys: of the dropout, [B, h_v, N]."""
        query, key, value, P_l, P_w = map(dense, tensors)
        B, N = query.shape[:2]
        output = value.new_empty(B, N, *value.shape[2:])
        lse = query.new_empty(B, N, -(-P_l.shape[1] // 8) * 8, dtype=torch.float32)
        inputs = {
            "query": query, "key": key, "value": value, "logits_projection": P_l, "weights_projection": P_w,
            "mask": mask, "dropout_keys": keys,
        }  # fmt: skip
        launch = Launch(plan, scale, dropout, **inputs)
        for program in ("sums", "output"):
            launch(program, plan.blocks(B, N), lse=lse, output=output)
        ctx.save_for_backward(lse, *inputs.values())
        ctx.names, ctx.options = tuple(inputs), (plan, scale, dropout)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key, value, P_l and P_w."""
        lse, *saved = ctx.saved_tensors
        inputs = dict(zip(ctx.names, saved, strict=True))
        plan, scale, dropout = ctx.options
        (B, N), M = inputs["query"].shape[:2], inputs["key"].shape[1]
        of_queries, of_memory = plan.blocks(B, N), plan.blocks(B, M)
        numbers = {"lse": lse, "correction": torch.empty_like(lse), "grad_output": dense(grad_output)}
        query, key, value = (torch.empty_like(inputs[name]) for name in ("query", "key", "value"))
        # each block writes its part of these sums
        logits = lse.new_empty(of_queries, *inputs["logits_projection"].shape)
        weights = lse.new_empty(of_queries, *inputs["weights_projection"].shape)
        launch = Launch(plan, scale, dropout, **inputs)
        launch("correction", of_queries, **numbers, grad_weights_projection=weights)
        launch("query_gradient", of_queries, **numbers, grad_query=query, grad_logits_projection=logits)
        launch("key_gradient", of_memory, **numbers, grad_key=key)
        launch("value_gradient", of_memory, **numbers, grad_value=value)
        sums = (part.sum(0).to(query.dtype) for part in (logits, weights))
        return None, None, None, None, None, query, key, value, *sums
