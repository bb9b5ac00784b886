"""What a layer costs, in closed form: the products of the talking-heads paper (2003.02436), line by line.

As the papers do, only the multiplications of products are counted: no softmax, mask, bias or scale.
What a layer keeps of the memory, to generate one position after the other, is counted in numbers.
"""

# N queries, M memory

from __future__ import annotations

import dataclasses

from torch import nn


@dataclasses.dataclass(frozen=True)
class Cost:
    """Parameters of a layer, and multiplications for one example; a sum is the cost of the parts together.

    cached: numbers that stay of the memory of one example, so that a further query can attend to it (a cache of keys
    and values).
    """

    parameters: int = 0
    multiplies: int = 0
    cached: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.multiplies + other.multiplies, self.cached + other.cached)


def linear(positions: int, *maps: nn.Linear) -> Cost:
    """Cost of linear maps of so many positions: Q = X P_q takes n d_X d_k h_k multiplies, K, V and Y likewise."""
    sizes = [each.in_features * each.out_features for each in maps]
    biases = sum(each.out_features for each in maps if each.bias is not None)
    return Cost(sum(sizes) + biases, positions * sum(sizes))


def cache(memory: int, *maps: nn.Linear) -> Cost:
    """Cost of keeping what linear maps make of the memory: its keys and its values."""
    return Cost(cached=memory * sum(each.out_features for each in maps))


def attention(N: int, M: int, key_width: int, value_width: int) -> Cost:
    """Cost of J = QK^T, n m h_k d_k, and O = UV, n m h_v d_v, with the widths h_k d_k and h_v d_v."""
    return Cost(0, N * M * (key_width + value_width))


def mixing(N: int, M: int, heads: int, mixed_heads: int, static: bool, query_size: int, memory_size: int) -> Cost:
    """Cost of L = J P_l or U = W P_w, n m h_in h_out multiplies and those of P itself.

    query_size, memory_size: the width of X, of M where P has a dynamic term of it, else 0. Each dynamic term takes a
    product of maps; a static term is added into a dynamic one first, and takes a product only where there is none
    (the authors' code, mesh_tensorflow/transformer/transformer_layers.py). That of the memory is kept.
    """
    size = heads * mixed_heads
    terms = max(int(static), (query_size > 0) + (memory_size > 0))
    parameters = (static + query_size + memory_size) * size
    multiplies = (N * query_size + M * memory_size + terms * N * M) * size
    return Cost(parameters, multiplies, M * size if memory_size else 0)
