"""Which attention maps a head of small rank can give (Bhojanapalli et al. 2020, 2002.07028, theorem 1): fitted.

A random positive column-stochastic P is approached by softmax(K^T Q / sqrt(d_k)), column by column; the error is
|fit - P| / |P| in the Frobenius norm, the least of several starts.
"""

# N tokens, D width of X and of a head, H heads; columns are queries, rows the memory, as in the theorem

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.settings.extras import check_installed

Form = Literal["free", "given_x", "weights", "talking_heads", "construction", "counter_example"]
ACCURACY = 1e-15
EVALUATIONS = 150  # of a start, at most


class Fit(NamedTuple):
    """A parametrised map, and the starts to fit it from."""

    map: Callable[[Tensor], Tensor]
    starts: list[np.ndarray]


def measure(*, seed: int, form: Form, tokens: int, heads: int, key_size: int, starts: int) -> dict[str, float]:
    """The error of the best fit of the matrix of this seed.

    free: any Q and K of `key_size` rows. given_x: W_k X and W_q X of a random X with `key_size` rows, the theorem's
    form. weights: a signed mixture of `heads` free maps. talking_heads: the logits mixed as well. construction: the
    theorem's solution, fitted by nobody. counter_example: given_x with X = [1, 0]. Raises MissingExtra without SciPy.
    """
    check_installed("tables", "a fit by least squares", "scipy")
    random = np.random.default_rng([seed, tokens])
    target_NN = random.dirichlet(np.ones(tokens), tokens).T
    # the matrix is the same for all forms, and a smaller X is a larger one's first rows: they differ in what is varied
    x_DN = random.normal(size=(tokens, tokens))[:key_size]
    if form == "construction":
        return {"error": relative_error(construct(target_NN, x_DN), target_NN)}
    if form == "counter_example":
        x_DN = np.array([[1.0, 0.0]])
    random = np.random.default_rng([seed, tokens, heads, key_size])
    error = best_error(_fits(form, target_NN, x_DN, heads, key_size, random, starts), target_NN)
    # a bound for one softmax; a mixture of several isn't one
    return {"error": error} | ({"rank_gap": rank_gap(target_NN, key_size)} if heads == 1 else {})


def relative_error(map_NN: np.ndarray, target_NN: np.ndarray) -> float:
    """|map - target| / |target| in the Frobenius norm."""
    return float(np.linalg.norm(map_NN - target_NN) / np.linalg.norm(target_NN))


def construct(target_NN: np.ndarray, x_DN: np.ndarray) -> np.ndarray:
    """The proof's solution for X of full column rank: W_k X = I and W_q X = sqrt(d) log P, through X's left inverse."""
    size, inverse_ND = len(x_DN), np.linalg.pinv(x_DN)
    key_map, query_map = inverse_ND, math.sqrt(size) * np.log(target_NN) @ inverse_ND
    logits_NN = (key_map @ x_DN).T @ (query_map @ x_DN) / math.sqrt(size)
    return torch.softmax(torch.from_numpy(logits_NN), 0).numpy()


def rank_gap(target_NN: np.ndarray, rank: int) -> float:
    """The first singular value of log P, less its columns' means, that `rank` leaves out.

    The softmax doesn't see a constant added to a column. So softmax(L) = P says L and log P agree when their columns'
    means are taken away, which raises no rank: above 0, no L of that rank gives P.
    """
    log_NN = np.log(target_NN)
    values = np.linalg.svd(log_NN - log_NN.mean(0), compute_uv=False)
    return float(values[rank]) if rank < len(values) else 0.0


def best_error(fit: Fit, target_NN: np.ndarray) -> float:
    """The least relative error over all starts, by least squares (trust region, exact Jacobian)."""
    # here, as a table of what was computed before is shown without it
    from scipy.optimize import least_squares

    target, norm = torch.from_numpy(target_NN), float(np.linalg.norm(target_NN))

    def residual(parameters: Tensor) -> Tensor:
        return ((fit.map(parameters) - target) / norm).flatten()

    jacobian = torch.func.jacrev(residual)
    fits = (
        least_squares(
            lambda values: residual(torch.from_numpy(values)).numpy(), start, max_nfev=EVALUATIONS,
            jac=lambda values: jacobian(torch.from_numpy(values)).numpy(), ftol=ACCURACY, xtol=ACCURACY, gtol=ACCURACY,
        )
        for start in fit.starts
    )  # fmt: skip
    return min(float(np.linalg.norm(each.fun)) for each in fits)


def _fits(
    form: Form, target_NN: np.ndarray, x_DN: np.ndarray, heads: int, key_size: int, random: np.random.Generator,
    starts: int,
) -> Fit:  # fmt: skip
    tokens = target_NN.shape[0]
    if form in ("given_x", "counter_example"):
        x = torch.from_numpy(x_DN)
        size = len(x_DN)

        # W_k^T W_q is any D x D matrix, as both are
        def given_x(parameters: Tensor) -> Tensor:
            return torch.softmax(x.T @ parameters.reshape(size, size) @ x / math.sqrt(size), 0)

        return Fit(given_x, [random.normal(size=size * size) for _ in range(starts)])
    mixes = form == "talking_heads"
    queries = heads * key_size * tokens

    def free(parameters: Tensor) -> Tensor:
        """Q, K [H, D, N], then P_l [H, H] where the logits mix, and P_w [H] where there are several maps."""
        query, key = parameters[: 2 * queries].reshape(2, heads, key_size, tokens)
        logits = torch.einsum("hdm,hdn->hmn", key, query) / math.sqrt(key_size)
        rest = parameters[2 * queries :]
        if mixes:
            logits = torch.einsum("kmn,kh->hmn", logits, rest[: heads * heads].reshape(heads, heads))
        maps = torch.softmax(logits, 1)
        return torch.einsum("hmn,h->mn", maps, rest[-heads:]) if heads > 1 else maps[0]

    mixing = [mixes * heads * heads, heads if heads > 1 else 0]

    def start() -> np.ndarray:
        # weights that sum to one: near the maps themselves
        return np.concatenate([random.normal(size=2 * queries + mixing[0]), np.full(mixing[1], 1 / heads)])

    random_starts = [start() for _ in range(starts)]
    return Fit(free, [*random_starts, _truncated(target_NN, key_size)] if heads == 1 else random_starts)


def _truncated(target_NN: np.ndarray, rank: int) -> np.ndarray:
    """Q and K whose logits are the best approximation of log P of that rank, its columns' means taken away."""
    log_NN = np.log(target_NN)
    left, values, right = np.linalg.svd(log_NN - log_NN.mean(0))
    scale = np.sqrt(values[:rank] * math.sqrt(rank))[:, None]
    return np.concatenate([(scale * right[:rank]).ravel(), (scale * left.T[:rank]).ravel()])
