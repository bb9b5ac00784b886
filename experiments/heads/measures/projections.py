"""How talking heads talk: P_l, P_w and P_l P_w of each layer (Shazeer et al. 2020, 2003.02436, figure 1)."""

# h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

from torch import Tensor

from experiments.model.transformer import Transformer

PROJECTION_NAMES = ("P_l", "P_w", "P_l P_w")


def static_projections(model: Transformer) -> list[dict[str, Tensor]]:
    """The static projections of each layer, [heads before, heads after]; empty for heads that do not mix."""
    projections = []
    for attention in model.attentions:
        static = zip(PROJECTION_NAMES, attention.static_projections(), strict=False)
        by_name = {name: matrix.detach() for name, matrix in static if matrix is not None}
        if len(by_name) == 2:
            by_name["P_l P_w"] = by_name["P_l"] @ by_name["P_w"]
        projections.append(by_name)
    return projections


def distance_from_identity(matrix: Tensor) -> float | None:
    """||P - I|| / ||I||, Frobenius: 0 for heads that do not talk. None if P is not square."""
    rows, columns = matrix.shape
    if rows != columns:
        return None
    return float((matrix - matrix.new_ones(rows).diag()).norm() / rows**0.5)


def off_diagonal_share(matrix: Tensor) -> float:
    """The share of the squared entries off the diagonal: 0 for a diagonal P, `random_off_diagonal` for a random one."""
    total = matrix.square().sum()
    return float(1 - matrix.diagonal().square().sum() / total)


def random_off_diagonal(matrix: Tensor) -> float:
    """The mean share of the squared entries off the diagonal in random matrices [a, b]: 1 - 1 / max(a, b)."""
    return 1 - 1 / max(matrix.shape)


def effective_partners(matrix: Tensor) -> float:
    """The effective number of heads that a head talks to: (sum p^2)^2 / sum p^4 for each row, averaged.

    1 if each row has one entry, b in a matrix [a, b] whose entries have the same size, about (b + 2) / 3 for normally
    distributed ones.
    """
    square = matrix.square()
    return float((square.sum(1).square() / square.square().sum(1)).mean())
