"""Why dot products are divided by sqrt(d_k) (Vaswani et al. 2017, 1706.03762, section 3.2.1 and footnote 4): drawn.

Queries and keys of independent components with mean 0 and variance 1 have products of variance d_k; a softmax of such
logits comes near to one-hot as d_k grows, and its gradient vanishes.
"""

# N queries, M memory, K key size

from __future__ import annotations

import math
from typing import Literal

import numpy as np

Scale = Literal["divided", "none", "smaller_start"]


def measure(*, seed: int, scale: Scale, key_size: int, queries: int, memory: int) -> dict[str, float]:
    """The logits of random queries and keys, and what a softmax makes of them, as means over the queries.

    scale: divided: q k / sqrt(d_k). none: q k. smaller_start: q k with queries drawn d_k^(-1/2) as large.

    `saturation`: 1 - entropy / ln M, 0 for equal weights and 1 for a single one; `variance` of the logits; `gradient`:
    the Frobenius norm of the softmax's Jacobian diag(w) - w w^T.
    """
    # a smaller d_k is the first components of a larger one
    random = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    query_KN = random[0].normal(size=(key_size, queries))
    key_KM = random[1].normal(size=(key_size, memory))
    if scale == "smaller_start":
        query_KN = query_KN / math.sqrt(key_size)
    logits_NM = query_KN.T @ key_KM
    if scale == "divided":
        logits_NM = logits_NM / math.sqrt(key_size)
    shifted_NM = logits_NM - logits_NM.max(1, keepdims=True)
    weights_NM = np.exp(shifted_NM)
    sums_N1 = weights_NM.sum(1, keepdims=True)
    weights_NM = weights_NM / sums_N1
    # -sum w ln w with ln w from the logits, as a weight may round to 0
    entropy_N = -(weights_NM * (shifted_NM - np.log(sums_N1))).sum(1)
    return {
        "saturation": float(1 - entropy_N.mean() / math.log(memory)),
        "variance": float(logits_NM.var()),
        "gradient": float(np.mean([np.linalg.norm(np.diag(each) - np.outer(each, each)) for each in weights_NM])),
    }
