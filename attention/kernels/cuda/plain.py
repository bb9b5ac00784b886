"""Heads that don't mix, on a GPU, by `plain.cu`, which writes no map to memory.

torch's own kernels are faster, but their dropout draws from a global generator.
"""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attention.kernels.cuda.launch import Launch, dense
from attention.kernels.problem import Problem

ROWS = 64  # of a block; 16 of a warp
THREADS = 128
LARGEST_SIZE = 128  # of a key or a value: the sums of two gradients are in registers


class Sizes(NamedTuple):
    """What the programs are compiled for."""

    heads: int
    key_size: int
    value_size: int
    causal: bool
    masked: bool
    dropout: bool

    @classmethod
    def of(cls, problem: Problem) -> Sizes:
        """The sizes of a problem without projections."""
        sizes = (problem.query.shape[2], problem.query.shape[3], problem.value.shape[3])
        return cls(*sizes, problem.causal, problem.mask is not None, problem.dropout > 0)

    @property
    def columns(self) -> int:
        """The rows of the other side in a tile: fewer for larger heads, which need more registers."""
        return 64 if max(self.key_size, self.value_size) <= 64 else 32

    def shared_bytes(self) -> dict[str, int]:
        """Shared memory of each program."""
        key_row, value_row = (2 * (-(-size // 16) * 16) + 16 for size in (self.key_size, self.value_size))
        tiles = 2 * self.columns * (key_row + value_row)
        both = ROWS * (key_row + value_row) + tiles
        return {
            "plain_output": ROWS * key_row + tiles,
            "plain_query_gradient": both,
            # a key of the dropout and two numbers of each query
            "plain_memory_gradient": both + 2 * self.columns * 16,
        }

    def refusal(self, shared_limit: int) -> str | None:
        """Why the programs can't be run, or None."""
        if max(self.key_size, self.value_size) > LARGEST_SIZE:
            return f"it has registers for keys and values of size {LARGEST_SIZE}, where heads don't mix"
        if max(self.shared_bytes().values()) > shared_limit:
            return "its tiles need more shared memory than a program has on this GPU"
        return None

    def constants(self) -> dict[str, int]:
        """The constants that `plain.cu` asks for."""
        return {
            "HEADS": self.heads, "KEY_SIZE": self.key_size, "VALUE_SIZE": self.value_size,
            "COLUMNS": self.columns, "THREADS": THREADS,
            "CAUSAL": int(self.causal), "MASKED": int(self.masked), "DROPOUT": int(self.dropout),
        }  # fmt: skip

    def blocks(self, examples: int, length: int) -> int:
        """The number of blocks of a program; each computes some rows of a head."""
        return examples * self.heads * -(-length // ROWS)


class Plain(torch.autograd.Function):
    """Attention without mixing as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any, sizes: Sizes, scale: float, dropout: float, mask: Tensor | None, keys: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        """tensors: query [B, N, H, K], key [B, M, H, K], value [B, M, H, V]. keys: of the dropout, [B, H, N]."""
        query, key, value = map(dense, tensors)
        B, N = query.shape[:2]
        output, lse = value.new_empty(B, N, *value.shape[2:]), query.new_empty(B, sizes.heads, N, dtype=torch.float32)
        inputs = {"query": query, "key": key, "value": value, "mask": mask, "dropout_keys": keys}
        launch = Launch("plain.cu", sizes.constants(), THREADS, sizes.shared_bytes(), scale, dropout, **inputs)
        launch("plain_output", sizes.blocks(B, N), lse=lse, output=output)
        ctx.save_for_backward(output, lse, *inputs.values())
        ctx.names, ctx.options = tuple(inputs), (sizes, scale, dropout)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key and value."""
        output, lse, *saved = ctx.saved_tensors
        inputs = dict(zip(ctx.names, saved, strict=True))
        sizes, scale, dropout = ctx.options
        (B, N), M = inputs["query"].shape[:2], inputs["key"].shape[1]
        grad_output = dense(grad_output)
        # of all weights W of a query, the sum of W dW
        correction = (output.float() * grad_output).sum(-1).transpose(1, 2).contiguous()
        query, key, value = (torch.empty_like(inputs[name]) for name in ("query", "key", "value"))
        launch = Launch("plain.cu", sizes.constants(), THREADS, sizes.shared_bytes(), scale, dropout, **inputs)
        numbers = {"lse": lse, "correction": correction, "grad_output": grad_output}
        launch("plain_query_gradient", sizes.blocks(B, N), **numbers, grad_query=query)
        launch("plain_memory_gradient", sizes.blocks(B, M), **numbers, grad_key=key, grad_value=value)
        return None, None, None, None, None, query, key, value
