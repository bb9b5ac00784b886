"""How well heads of small rank can represent attention maps (Bhojanapalli et al. 2020, 2002.07028, theorem 1).

softmax(K^T Q / sqrt(d_k)), taken over each column, is fitted to a random positive column-stochastic matrix P. The error
is |fit - P| / |P| in the Frobenius norm, the smallest over several starts.
"""

# N tokens, D width of X and of a head, H heads. As in the theorem, columns are queries, and rows are the memory

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiments.failures.missing_extra import check_installed

Form = Literal["free", "given_x", "weights", "talking_heads", "construction", "counter_example"]
ACCURACY = 1e-15
EVALUATIONS = 150  # the most evaluations of the residual for a start


class Fit(NamedTuple):
    """A map as a function of its parameters, and the parameters from which fits start."""

    map: Callable[[Tensor], Tensor]
    starts: list[np.ndarray]


def measure(*, seed: int, form: Form, tokens: int, heads: int, key_size: int, starts: int) -> dict[str, float]:
    """Fit a form of attention map to the matrix P of this seed, and return the error of the best fit.

    `error` is relative and without a unit. With one head, `rank_gap` is also returned; see the function `rank_gap`.

    Args:
        seed: the seed of P, of X and of the starts.
        form: the map that is fitted.
            free: Q and K are any matrices with `key_size` rows.
            given_x: Q = W_q X and K = W_k X, with a random X of `key_size` rows; this is the theorem's form.
            weights: a mixture of `heads` free maps, with weights of either sign.
            talking_heads: the same, with the logits mixed too.
            construction: the solution in the theorem's proof, which needs no fit.
            counter_example: given_x with X = [1, 0].
        tokens: N, the number of rows and columns of P.
        heads: the number of maps that are mixed.
        key_size: the number of rows of Q and K.
        starts: the number of random starts.

    Raises MissingExtra without SciPy.
    """
    check_installed("tables", "a fit by least squares", "scipy")
    random = np.random.default_rng([seed, tokens])
    target_NN = random.dirichlet(np.ones(tokens), tokens).T
    # P is the same for all forms, and a smaller X consists of the first rows of a larger one, so that rows of the table
    # differ only in what is varied
    x_DN = random.normal(size=(tokens, tokens))[:key_size]
    if form == "construction":
        return {"error": relative_error(construct(target_NN, x_DN), target_NN)}
    if form == "counter_example":
        x_DN = np.array([[1.0, 0.0]])
    random = np.random.default_rng([seed, tokens, heads, key_size])
    error = best_error(_fits(form, target_NN, x_DN, heads, key_size, random, starts), target_NN)
    # the bound holds for one softmax, not for a mixture of several
    return {"error": error} | ({"rank_gap": rank_gap(target_NN, key_size)} if heads == 1 else {})


def relative_error(map_NN: np.ndarray, target_NN: np.ndarray) -> float:
    """|map - target| / |target| in the Frobenius norm."""
    return float(np.linalg.norm(map_NN - target_NN) / np.linalg.norm(target_NN))


def construct(target_NN: np.ndarray, x_DN: np.ndarray) -> np.ndarray:
    """The map of the proof's solution for an X [D, N] of full column rank.

    W_k X = I and W_q X = sqrt(d) log P are solved by the left inverse of X.
    """
    size, inverse_ND = len(x_DN), np.linalg.pinv(x_DN)
    key_map, query_map = inverse_ND, math.sqrt(size) * np.log(target_NN) @ inverse_ND
    logits_NN = (key_map @ x_DN).T @ (query_map @ x_DN) / math.sqrt(size)
    return torch.softmax(torch.from_numpy(logits_NN), 0).numpy()


def rank_gap(target_NN: np.ndarray, rank: int) -> float:
    """The largest singular value of log P, with its columns centred, that a matrix of this rank can't have.

    A constant added to a column doesn't change the softmax. softmax(L) = P therefore means that L and log P are equal
    once their columns are centred, and centring never increases the rank. If the result is above 0, no L of this rank
    gives P.
    """
    log_NN = np.log(target_NN)
    values = np.linalg.svd(log_NN - log_NN.mean(0), compute_uv=False)
    return float(values[rank]) if rank < len(values) else 0.0


def best_error(fit: Fit, target_NN: np.ndarray) -> float:
    """The smallest relative error over all starts, by least squares (trust region, exact Jacobian)."""
    # imported here, so that a table of earlier results can be shown without SciPy
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

        # W_k^T W_q can be any D x D matrix, so it is one parameter
        def given_x(parameters: Tensor) -> Tensor:
            return torch.softmax(x.T @ parameters.reshape(size, size) @ x / math.sqrt(size), 0)

        return Fit(given_x, [random.normal(size=size * size) for _ in range(starts)])
    mixes = form == "talking_heads"
    queries = heads * key_size * tokens

    def free(parameters: Tensor) -> Tensor:
        """The map for Q and K [H, D, N], then P_l [H, H] if the logits mix, and P_w [H] if there are several maps."""
        query, key = parameters[: 2 * queries].reshape(2, heads, key_size, tokens)
        logits = torch.einsum("hdm,hdn->hmn", key, query) / math.sqrt(key_size)
        rest = parameters[2 * queries :]
        if mixes:
            logits = torch.einsum("kmn,kh->hmn", logits, rest[: heads * heads].reshape(heads, heads))
        maps = torch.softmax(logits, 1)
        return torch.einsum("hmn,h->mn", maps, rest[-heads:]) if heads > 1 else maps[0]

    mixing = [mixes * heads * heads, heads if heads > 1 else 0]

    def start() -> np.ndarray:
        # weights that sum to 1, so that the start is a mean of the maps
        return np.concatenate([random.normal(size=2 * queries + mixing[0]), np.full(mixing[1], 1 / heads)])

    random_starts = [start() for _ in range(starts)]
    return Fit(free, [*random_starts, _truncated(target_NN, key_size)] if heads == 1 else random_starts)


def _truncated(target_NN: np.ndarray, rank: int) -> np.ndarray:
    """Q and K whose logits are the best approximation of this rank to log P with its columns centred."""
    log_NN = np.log(target_NN)
    left, values, right = np.linalg.svd(log_NN - log_NN.mean(0))
    scale = np.sqrt(values[:rank] * math.sqrt(rank))[:, None]
    return np.concatenate([(scale * right[:rank]).ravel(), (scale * left.T[:rank]).ravel()])
