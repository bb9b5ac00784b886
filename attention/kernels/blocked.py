"""Attention computed block by block, for every problem. The extra memory grows neither with B nor with N x M.

A block is some examples, or some query rows of one example. Its maps are freed when it is done. The backward pass
recomputes them, including the dropout.
"""

# sizes of a block: b examples, n query rows, m memory, h heads, g heads after mixing

from __future__ import annotations

import itertools
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attention.kernels import autocast
from attention.kernels.dropout import keep_scale, kept_weights, seed_number
from attention.kernels.problem import Problem, Projection
from attention.kernels.torch_compile import not_compiled

# The most bytes of a map of a block, all heads together. On a CPU the six maps of a block should fit into the cache and
# still be worth the calls. Half or twice as many bytes are as fast; 8 times as many take 1.5 times as long. A GPU needs
# larger blocks to be busy
BLOCK_BYTES = {"cpu": 2**21, "cuda": 2**26}


# torch.compile would unroll the loop over the blocks, so a compiled model calls this kernel uncompiled
@not_compiled
def attend(problem: Problem) -> Tensor:
    """Compute the same as the reference, including gradients, and keep only the inputs for the backward pass.

    Products are in the dtype of the inputs; the softmax and sums over blocks are in float32 or better. A second
    derivative raises torch's RuntimeError (once_differentiable).
    """
    # kept as a number, because the tensor may hold another seed before the backward pass
    seed = seed_number(problem.dropout_seed, problem.query)
    return _Blocked.apply(problem.causal, problem.scale, problem.dropout, seed, *_tensors(problem))


class Block(NamedTuple):
    """The place of a block in the batch, the query rows and the memory."""

    examples: slice
    rows: slice
    columns: slice


def blocks(problem: Problem) -> Iterator[Block]:
    """Whole examples, or rows of one example, in a fixed order.

    A map of a block has at most BLOCK_BYTES, or a single row. A causal block leaves out the memory after its last row.
    """
    B, N, heads, _ = problem.query.shape
    M, mixed = problem.key.shape[1], problem.logits_projection
    softmax_heads = heads if mixed is None else mixed.terms()[0].shape[-1]
    row = max(1, M) * max(1, heads, softmax_heads, problem.value.shape[2]) * problem.query.dtype.itemsize
    budget = BLOCK_BYTES.get(problem.query.device.type, BLOCK_BYTES["cpu"])
    n = max(1, min(N, budget // row))
    b = max(1, budget // (row * N)) if n == N else 1
    for example in range(0, B, b):
        for start in range(0, N, n):
            stop = min(N, start + n)
            columns = slice(0, min(M, stop) if problem.causal else M)
            yield Block(slice(example, min(B, example + b)), slice(start, stop), columns)


class _Blocked(torch.autograd.Function):
    """`attend` as one node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, causal: bool, scale: float, dropout: float, seed: int, *tensors: Tensor | None) -> Tensor:
        ctx.settings, ctx.seed = (causal, scale, dropout), seed
        ctx.save_for_backward(*tensors)
        problem = _problem(tensors, *ctx.settings)
        dropped = _Dropout(problem, seed) if dropout else None
        output = problem.value.new_empty(*problem.query.shape[:2], *problem.value.shape[2:])
        for block in blocks(problem):
            part = _part(problem, block)
            mixed = _maps(part, block.rows.start)[2]
            if dropped is not None:
                mixed = mixed * dropped.kept(mixed, block)
            output[block.examples, block.rows] = (mixed @ part.value.transpose(1, 2)).transpose(1, 2)
        return output if dropped is None else output.mul_(dropped.keep_scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        problem = _problem(tensors, *ctx.settings)
        dropped = _Dropout(problem, ctx.seed) if problem.dropout else None
        needed = ctx.needs_input_grad[-len(tensors) :]
        sums = [
            _Sum(tensor, shared) if need else None
            for tensor, shared, need in zip(tensors, _shared(tensors), needed, strict=True)
        ]
        present = [each for each in sums if each is not None]
        with autocast.disabled(problem.query):
            for examples, group in itertools.groupby(blocks(problem), attrgetter("examples")):
                for each in present:
                    each.begin(examples)
                for block in group:
                    grads = _gradients(_part(problem, block), block, grad_output[block.examples, block.rows], dropped)
                    places = _places(tensors, block._replace(examples=slice(None)))
                    for summed, grad, place in zip(sums, grads, places, strict=True):
                        if summed is not None and grad is not None:
                            summed.total[place] += grad
                for each in present:
                    each.end()
        return None, None, None, None, *(None if each is None else each.gradient.to(each.dtype) for each in sums)


def _maps(part: Problem, first_row: int) -> tuple[Tensor, Tensor, Tensor]:
    """The maps of a block, each [b, heads, n, m]: J, the softmax, and the weights after P_w.

    Without P_l, J is overwritten and must not be used.
    """
    logits = (part.query.transpose(1, 2) * part.scale) @ part.key.permute(0, 2, 3, 1)
    mixed = _mix(logits, part.logits_projection)
    # in place, because a mixed map is new, and an unmixed one isn't needed again
    if part.bias is not None:
        mixed += part.bias
    allowed, empty = part.permitted(first_row)
    if allowed is not None:
        mixed.masked_fill_(~allowed, float("-inf"))
    weights = torch.softmax(mixed, -1)
    if empty is not None:
        # these rows are NaN so far; with weights of zero, their gradients are zero too
        weights.masked_fill_(empty, 0.0)
    return logits, weights, _mix(weights, part.weights_projection)


def _gradients(part: Problem, block: Block, grad_output: Tensor, dropped: _Dropout | None) -> list[Tensor | None]:
    """The gradients of the block's parts of all tensors, in the order of `_tensors`."""
    logits, weights, mixed = _maps(part, block.rows.start)
    grad_output = grad_output.transpose(1, 2)
    if dropped is not None:
        grad_output = grad_output * dropped.keep_scale
    grad_mixed = grad_output @ part.value.permute(0, 2, 3, 1)
    if dropped is not None:
        kept = dropped.kept(mixed, block)
        mixed, grad_mixed = mixed * kept, grad_mixed * kept
    grad_value = mixed.transpose(-1, -2) @ grad_output
    grad_weights, weights_terms = _unmix(grad_mixed, weights, part.weights_projection)
    # weights * (grad - (weights * grad).sum(-1)) in one pass, summed in float32
    grad_logits = torch.ops.aten._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
    grad_bias = None if part.bias is None else grad_logits.sum_to_size(part.bias.shape)
    grad_logits, logits_terms = _unmix(grad_logits, logits, part.logits_projection)
    grad_query = (grad_logits @ part.key.transpose(1, 2)) * part.scale
    grad_key = grad_logits.transpose(-1, -2) @ (part.query.transpose(1, 2) * part.scale)
    by_position = (grad.transpose(1, 2) for grad in (grad_query, grad_key, grad_value))
    return [*by_position, *logits_terms, *weights_terms, grad_bias, None]


def _mix(maps: Tensor, projection: Projection | None) -> Tensor:
    """Mix the maps: [b, h, n, m] -> [b, g, n, m]."""
    if projection is None:
        return maps
    if projection.static is not None:
        return _combine(projection.static.t(), maps)
    mixed = []
    if projection.query is not None:
        mixed.append(torch.einsum("bhnm,bnhg->bgnm", maps, projection.query))
    if projection.memory is not None:
        mixed.append(torch.einsum("bhnm,bmhg->bgnm", maps, projection.memory))
    return sum(mixed[1:], start=mixed[0])


def _unmix(grad: Tensor, maps: Tensor, projection: Projection | None) -> tuple[Tensor, Projection]:
    """The gradients of the maps and of each term of the projection, through `_mix`."""
    if projection is None:
        return grad, Projection()
    if projection.static is not None:
        static = torch.bmm(maps.flatten(2), grad.flatten(2).transpose(1, 2)).sum(0)
        return _combine(projection.static, grad), Projection(static)
    inner, query, memory = [], None, None
    if projection.query is not None:
        inner.append(torch.einsum("bgnm,bnhg->bhnm", grad, projection.query))
        query = torch.einsum("bhnm,bgnm->bnhg", maps, grad)
    if projection.memory is not None:
        inner.append(torch.einsum("bgnm,bmhg->bhnm", grad, projection.memory))
        memory = torch.einsum("bhnm,bgnm->bmhg", maps, grad)
    return sum(inner[1:], start=inner[0]), Projection(None, query, memory)


def _combine(matrix: Tensor, maps: Tensor) -> Tensor:
    """[g, h] and [b, h, n, m] -> [b, g, n, m], by one wide product (g x h) (h x nm) for each example."""
    # not matmul: if the matrix requires a gradient, it transposes the maps to make one product of all examples
    return torch.bmm(matrix.expand(len(maps), *matrix.shape), maps.flatten(2)).unflatten(2, maps.shape[2:])


class _Dropout:
    """The dropout of a problem: the same weights are set to 0 in the forward and in the backward."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.keep_scale = keep_scale(problem.dropout)
        self.probability, self.seed = problem.dropout, seed
        self.shape = (len(problem.query), problem.value.shape[2], problem.query.shape[1])

    def kept(self, maps: Tensor, block: Block) -> Tensor:
        """1 for a weight that is kept, else 0, in the dtype of the block's maps [b, h_v, n, m]."""
        memory, device = maps.shape[-1], maps.device
        kept = kept_weights(self.seed, self.probability, self.shape, memory, device, block.examples, block.rows)
        return kept.to(maps.dtype)


class _Sum:
    """The gradient of one tensor, summed over blocks in float32 or better.

    If all examples share the tensor, the whole sum stays wide until the end. Otherwise the part of an example is
    rounded to `dtype` once its blocks are done, so the wide total is never larger than the examples of a block.
    """

    def __init__(self, tensor: Tensor, shared: bool) -> None:
        self.shared, self.dtype = shared, tensor.dtype
        self.wide = torch.promote_types(tensor.dtype, torch.float32)
        self.gradient = torch.zeros(tensor.shape, dtype=self.wide if shared else self.dtype, device=tensor.device)

    def begin(self, examples: slice) -> None:
        """Begin the blocks of these examples; their gradients are to be added to `total`."""
        self.part = self.gradient if self.shared else self.gradient[examples]
        self.total = self.part.to(self.wide)  # the part itself if it is wide already

    def end(self) -> None:
        """Store the total, when all blocks of the examples have been added."""
        if self.total is not self.part:
            self.part.copy_(self.total)


def _shared(tensors: tuple[Tensor | None, ...]) -> list[bool]:
    """Whether all examples share a tensor, for each of `_tensors`: a static term, or a bias or mask of one example."""
    terms = [True, False, False]  # the terms of a Projection
    broadcast = [tensor is not None and tensor.shape[0] == 1 for tensor in tensors[-2:]]
    return [False, False, False, *terms, *terms, *broadcast]


def _tensors(problem: Problem) -> tuple[Tensor | None, ...]:
    """The tensors of the problem in a fixed order, without the seed."""
    logits, weights = problem.logits_projection or Projection(), problem.weights_projection or Projection()
    return (problem.query, problem.key, problem.value, *logits, *weights, problem.bias, problem.mask)


def _problem(tensors: tuple[Any, ...], causal: bool, scale: float, dropout: float) -> Problem:
    """The inverse of `_tensors`."""
    query, key, value, *terms, bias, mask = tensors
    logits, weights = Projection(*terms[:3]), Projection(*terms[3:])
    projections = (logits if logits.terms() else None, weights if weights.terms() else None)
    return Problem(query, key, value, *projections, bias, mask, causal, scale, dropout, None)


def _places(tensors: tuple[Tensor | None, ...], block: Block) -> list[tuple[slice, ...]]:
    """The block's place in each tensor of `_tensors`; a dimension of 1 belongs to all blocks."""
    queries, memory = (block.examples, block.rows), (block.examples, block.columns)
    maps = (block.examples, slice(None), block.rows, block.columns)
    wide = [
        tuple(place if size > 1 else slice(None) for size, place in zip(tensor.shape, maps, strict=True))
        if tensor is not None
        else ()
        for tensor in tensors[-2:]
    ]
    return [queries, memory, memory, *2 * [(), queries, memory], *wide]


def _part(problem: Problem, block: Block) -> Problem:
    """The problem of a block alone."""
    tensors = _tensors(problem)
    places = zip(tensors, _places(tensors, block), strict=True)
    parts = tuple(None if tensor is None else tensor[place] for tensor, place in places)
    return _problem(parts, problem.causal, problem.scale, problem.dropout)
