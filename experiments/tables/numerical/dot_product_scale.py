"""Why dot products are divided by sqrt(d_k) (Vaswani et al. 2017, 1706.03762, section 3.2.1 and footnote 4).

If the components of queries and keys are independent with mean 0 and variance 1, their dot products have variance d_k.
As d_k grows, the softmax of such logits approaches one-hot vectors, and its gradient vanishes. This is measured on
random queries and keys.
"""

# N queries, M memory, K key size

from __future__ import annotations

import math
from typing import Literal

import numpy as np

Scale = Literal["divided", "none", "smaller_start"]


def measure(*, seed: int, scale: Scale, key_size: int, queries: int, memory: int) -> dict[str, float]:
    """Measure the logits of random queries and keys, and their softmax.

    Args:
        seed: the seed of the queries and keys.
        scale: how the logits are scaled. divided: q k / sqrt(d_k). none: q k. smaller_start: q k with queries
            multiplied by 1 / sqrt(d_k).
        key_size: d_k, the components of a query and of a key.
        queries: the number of queries.
        memory: M, the number of keys.

    Returns three numbers without units. `variance` is the variance of the logits. The others are means over the
    queries: `saturation` is 1 - entropy / ln M of the weights w, 0 for equal weights and 1 for a single one; `gradient`
    is the Frobenius norm of the softmax's Jacobian diag(w) - w w^T.
    """
    # the vectors of a smaller d_k are the first components of those of a larger one
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
    # -sum w ln w, with ln w computed from the logits because a weight may round to 0
    entropy_N = -(weights_NM * (shifted_NM - np.log(sums_N1))).sum(1)
    return {
        "saturation": float(1 - entropy_N.mean() / math.log(memory)),
        "variance": float(logits_NM.var()),
        "gradient": float(np.mean([np.linalg.norm(np.diag(each) - np.outer(each, each)) for each in weights_NM])),
    }
