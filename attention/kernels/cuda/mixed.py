"""Mixed heads on a GPU, by `mixed.cu`.

A forward pass keeps one number for each query and head. The backward pass computes the maps again, in four programs:
the sums of W dW, the gradients of the queries, of the keys and of the values.
"""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attention.kernels.cuda.launch import Launch, dense
from attention.kernels.problem import Problem

# tiles of 16 x and of 8 y, the faster first: with more x a row of y is loaded less often
TILES = ((2, 4), (1, 4), (1, 2))
LARGEST_WIDTH = 1024  # numbers of a row of all heads: their sums are in registers, 128 of a thread's 255 for this width


class Sizes(NamedTuple):
    """What the programs are compiled for."""

    key_heads: int
    heads: int
    value_heads: int
    key_size: int
    value_size: int
    causal: bool
    masked: bool
    dropout: bool

    @classmethod
    def of(cls, problem: Problem) -> Sizes:
        """The sizes of a problem with static projections."""
        query, value, projection = problem.query, problem.value, problem.logits_projection
        heads = query.shape[2] if projection is None or projection.static is None else projection.static.shape[1]
        sizes = (query.shape[2], heads, value.shape[2], query.shape[3], value.shape[3])
        return cls(*sizes, problem.causal, problem.mask is not None, problem.dropout > 0)

    @property
    def key_width(self) -> int:
        """K, as the products over features need it: a multiple of 16."""
        return -(-self.key_size // 16) * 16

    @property
    def value_width(self) -> int:
        """V, likewise."""
        return -(-self.value_size // 16) * 16

    def shared_bytes(self, x_tiles: int, y_tiles: int) -> dict[str, int]:
        """Shared memory of each program. Maps are there for all heads of the values, or for eight heads of the keys."""
        X, Y = 16 * x_tiles, 8 * y_tiles
        G_K, G, G_V = (-(-heads // 8) for heads in self[:3])
        key_row, value_row = 2 * self.key_heads * self.key_width + 16, 2 * self.value_heads * self.value_width + 16
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

    def refusal(self, shared_limit: int) -> str | None:
        """Why the programs can't be run, or None."""
        if max(self.key_heads * self.key_width, self.value_heads * self.value_width) > LARGEST_WIDTH:
            return f"it has registers for {LARGEST_WIDTH} numbers of all heads of a position"
        if self.tiles(shared_limit) is None:
            return "its tiles need more shared memory than a program has on this GPU"
        return None

    def tiles(self, shared_limit: int) -> tuple[int, int] | None:
        """The first of TILES for which every program has enough shared memory, or None."""
        fitting = (tiles for tiles in TILES if max(self.shared_bytes(*tiles).values()) <= shared_limit)
        return next(fitting, None)

    def constants(self, x_tiles: int, y_tiles: int) -> dict[str, int]:
        """The constants that `mixed.cu` asks for."""
        return {
            "KEY_HEADS": self.key_heads, "HEADS": self.heads, "VALUE_HEADS": self.value_heads,
            "KEY_SIZE": self.key_size, "VALUE_SIZE": self.value_size,
            "X_TILES": x_tiles, "Y_TILES": y_tiles, "THREADS": 32 * x_tiles * y_tiles,
            "VALUE_ROUND": -(-self.value_heads // 8), "KEY_ROUND": 1,
            "CAUSAL": int(self.causal), "MASKED": int(self.masked), "DROPOUT": int(self.dropout),
        }  # fmt: skip

    def blocks(self, tiles: tuple[int, int], examples: int, length: int) -> int:
        """The number of blocks of a program; each computes some queries, or memory positions, of an example."""
        return examples * -(-length // (16 * tiles[0]))

    def launch(self, tiles: tuple[int, int], scale: float, dropout: float, inputs: dict[str, Tensor | None]) -> Launch:
        """The launch of the programs on these inputs."""
        threads = 32 * tiles[0] * tiles[1]
        return Launch("mixed.cu", self.constants(*tiles), threads, self.shared_bytes(*tiles), scale, dropout, **inputs)


def projections(problem: Problem, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """P_l [h_k, h] and P_w [h, h_v]; one that the problem doesn't have is the identity."""
    given = (each and each.static for each in (problem.logits_projection, problem.weights_projection))
    # not kept from one problem to the next: one that is made where tensors have no data has none either
    identity = functools.partial(torch.eye, sizes.heads, dtype=torch.bfloat16, device=problem.query.device)
    logits, weights = (identity() if each is None else each for each in given)
    return logits, weights


class Mixed(torch.autograd.Function):
    """Attention with mixed heads as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any,
        sizes: Sizes,
        tiles: tuple[int, int],
        scale: float,
        dropout: float,
        mask: Tensor | None,
        keys: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        """tensors: query, key, value, P_l, P_w. keys: of the dropout, [B, h_v, N]."""
        query, key, value, P_l, P_w = map(dense, tensors)
        B, N = query.shape[:2]
        output = value.new_empty(B, N, *value.shape[2:])
        lse = query.new_empty(B, N, -(-sizes.heads // 8) * 8, dtype=torch.float32)
        inputs = {
            "query": query, "key": key, "value": value, "logits_projection": P_l, "weights_projection": P_w,
            "mask": mask, "dropout_keys": keys,
        }  # fmt: skip
        launch = sizes.launch(tiles, scale, dropout, inputs)
        for program in ("sums", "output"):
            launch(program, sizes.blocks(tiles, B, N), lse=lse, output=output)
        ctx.save_for_backward(lse, *inputs.values())
        ctx.names, ctx.options = tuple(inputs), (sizes, tiles, scale, dropout)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key, value, P_l and P_w."""
        lse, *saved = ctx.saved_tensors
        inputs = dict(zip(ctx.names, saved, strict=True))
        sizes, tiles, scale, dropout = ctx.options
        (B, N), M = inputs["query"].shape[:2], inputs["key"].shape[1]
        of_queries, of_memory = sizes.blocks(tiles, B, N), sizes.blocks(tiles, B, M)
        numbers = {"lse": lse, "correction": torch.empty_like(lse), "grad_output": dense(grad_output)}
        query, key, value = (torch.empty_like(inputs[name]) for name in ("query", "key", "value"))
        # each block writes its part of these sums
        logits = lse.new_empty(of_queries, sizes.key_heads, sizes.heads)
        weights = lse.new_empty(of_queries, sizes.heads, sizes.value_heads)
        launch = sizes.launch(tiles, scale, dropout, inputs)
        launch("correction", of_queries, **numbers, grad_weights_projection=weights)
        launch("query_gradient", of_queries, **numbers, grad_query=query, grad_logits_projection=logits)
        launch("key_gradient", of_memory, **numbers, grad_key=key)
        launch("value_gradient", of_memory, **numbers, grad_value=value)
        sums = (part.sum(0).to(query.dtype) for part in (logits, weights))
        return None, None, None, None, None, None, query, key, value, *sums
