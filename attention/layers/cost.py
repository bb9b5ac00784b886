"""The cost of a layer in closed form: the products of the talking-heads paper (2003.02436), line by line.

As in the papers, only the multiplications of matrix products are counted, not the softmax, mask, bias or scale. The
cache that a layer needs to generate one position after the other is counted in numbers.
"""

# N queries, M memory

from __future__ import annotations

import dataclasses

from torch import nn


@dataclasses.dataclass(frozen=True)
class Cost:
    """Parameters of a layer, and multiplications for one example; the cost of several parts is their sum.

    cached: how many numbers of one example are kept (such as keys and values), so that a later query can attend to it.
    """

    parameters: int = 0
    multiplies: int = 0
    cached: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.multiplies + other.multiplies, self.cached + other.cached)


def linear(positions: int, *maps: nn.Linear) -> Cost:
    """Cost of linear maps, each applied to `positions` positions: Q = X P_q takes n d_X d_k h_k multiplies."""
    sizes = [each.in_features * each.out_features for each in maps]
    biases = sum(each.out_features for each in maps if each.bias is not None)
    return Cost(sum(sizes) + biases, positions * sum(sizes))


def cache(memory: int, *maps: nn.Linear) -> Cost:
    """Cost of caching the outputs of linear maps of the memory, such as its keys and values."""
    return Cost(cached=memory * sum(each.out_features for each in maps))


def attention(N: int, M: int, key_width: int, value_width: int) -> Cost:
    """Cost of J = QK^T, n m h_k d_k, and of O = UV, n m h_v d_v; key_width is h_k d_k, and value_width is h_v d_v."""
    return Cost(0, N * M * (key_width + value_width))


def mixing(N: int, M: int, heads: int, mixed_heads: int, static: bool, query_size: int, memory_size: int) -> Cost:
    """Cost of L = J P_l or U = W P_w: n m h_in h_out multiplies for each product, and those of computing P.

    query_size and memory_size are the widths of X and M if P has a dynamic term of them, else 0. Each dynamic term
    takes a product with the maps. A static term is added to a dynamic term first, and takes a product only if there is
    no dynamic term (as in the authors' code, mesh_tensorflow/transformer/transformer_layers.py). The dynamic term of
    the memory is cached.
    """
    size = heads * mixed_heads
    terms = max(int(static), (query_size > 0) + (memory_size > 0))
    parameters = (static + query_size + memory_size) * size
    multiplies = (N * query_size + M * memory_size + terms * N * M) * size
    return Cost(parameters, multiplies, M * size if memory_size else 0)
