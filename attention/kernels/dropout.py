"""Which weights dropout sets to 0: a function of (seed, example, head, query, memory), the same in every kernel.

The place of a row of weights in [B, h_v, N] is hashed with the seed to two words of 32 bits (SplitMix64, Steele et al.
2014). The memory position is hashed with the first word, and the second word is added; this number decides whether the
weight is kept. A kernel can therefore compute any block of the mask in the forward and again in the backward pass, and
needs no generator with a state. `compiled/dropout.h` and `cuda/problem.h` compute the same function.
"""

# B batch, N queries, M memory, h_v heads of the values

from __future__ import annotations

import torch
from torch import Tensor

from attention.kernels.problem import Problem, has_no_data

# constants of SplitMix64, as signed numbers of 64 bits
INCREMENT, FIRST_FACTOR, SECOND_FACTOR = -7046029254386353131, -4658895280553007687, -7723592293110705685
# factors of the hash of a memory position, as signed numbers of 32 bits
COLUMN_FACTOR, FIRST_MIXER, SECOND_MIXER = -1640531527, 2146121005, -2073254261


def keep_threshold(dropout: float) -> int:
    """A weight is kept if its hash, a signed number of 32 bits, is below this bound."""
    return _kept_share(dropout) - 2**31


def keep_scale(dropout: float) -> float:
    """The factor of the weights that are kept: 1 / (the share that is kept, rounded to 2**-32)."""
    return 2**32 / _kept_share(dropout)


def _kept_share(dropout: float) -> int:
    """The share of weights that are kept, in units of 2**-32."""
    return min(max(round((1 - dropout) * 2**32), 1), 2**32 - 1)


def kept_weights(
    seed: Tensor | int,
    dropout: float,
    shape: tuple[int, int, int],
    memory: int,
    device: torch.device,
    examples: slice = slice(None),
    rows: slice = slice(None),
) -> Tensor:
    """The part [b, h_v, n, memory] of the dropout mask of weights [B, h_v, N, M]: bool, True for a weight that is kept.

    shape: (B, h_v, N). examples and rows select b examples and n queries. memory: how many of the first of M positions.
    """
    key = row_keys(seed, shape, device, examples, rows)
    first, second = key.to(torch.int32)[..., None], (key >> 32).to(torch.int32)[..., None]
    words = (torch.arange(memory, device=device) * COLUMN_FACTOR).to(torch.int32) + first
    # torch's shift copies the sign bit, so the bits that it brings in are masked
    words ^= (words >> 16) & (2**16 - 1)
    words *= FIRST_MIXER
    words ^= (words >> 15) & (2**17 - 1)
    words *= SECOND_MIXER
    words += second
    return words < keep_threshold(dropout)


def row_keys(
    seed: Tensor | int,
    shape: tuple[int, int, int],
    device: torch.device,
    examples: slice = slice(None),
    rows: slice = slice(None),
) -> Tensor:
    """The two words of each row of weights as one int64, [b, h_v, n], the first in its lower half.

    shape: (B, h_v, N). examples and rows select b examples and n queries.
    """
    B, heads, N = shape
    example = torch.arange(B, device=device)[examples, None, None]
    row = (example * heads + torch.arange(heads, device=device)[:, None]) * N + torch.arange(N, device=device)[rows]
    # a copy of the tensor to a GPU waits for the GPU, but a number doesn't
    return _splitmix64(_splitmix64(row) ^ (seed if isinstance(seed, int) else seed.to(device)))


def drop(weights: Tensor, problem: Problem) -> Tensor:
    """Set the share `problem.dropout` of the weights [B, h_v, N, M] to 0, and scale the others by `keep_scale`."""
    if problem.dropout_seed is None:
        return weights
    B, heads, N, M = weights.shape
    kept = kept_weights(problem.dropout_seed, problem.dropout, (B, heads, N), M, weights.device)
    return weights * kept * keep_scale(problem.dropout)


def seed_number(seed: Tensor | None, like: Tensor) -> int:
    """The seed as a number; 0 if nothing is dropped, or if the tensors have shapes but no data."""
    if seed is None or has_no_data(like) or has_no_data(seed):
        return 0
    return int(seed)


def _splitmix64(x: Tensor) -> Tensor:
    """SplitMix64's output function for int64; the masks make the shifts of signed numbers logical."""
    x = x + INCREMENT
    x = (x ^ ((x >> 30) & (2**34 - 1))) * FIRST_FACTOR
    x = (x ^ ((x >> 27) & (2**37 - 1))) * SECOND_FACTOR
    return x ^ ((x >> 31) & (2**33 - 1))
