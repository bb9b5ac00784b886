"""How talking heads talk: P_l, P_w and P_l P_w of each layer (Shazeer et al. 2020, 2003.02436, figure 1)."""

# h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

from torch import Tensor

from experiments.model.transformer import Transformer

NAMES = ("P_l", "P_w", "P_l P_w")


def projections_of(model: Transformer) -> list[dict[str, Tensor]]:
    """The static projections that each layer has, [heads before, heads after]; nothing for heads that don't mix."""
    projections = []
    for layer in model.layers:
        parts = [getattr(layer.attention, name, None) for name in ("logits_projection", "weights_projection")]
        static = [None if part is None or part.static is None else part.static.detach() for part in parts]
        named = {name: matrix for name, matrix in zip(NAMES, static, strict=False) if matrix is not None}
        if len(named) == 2:
            named["P_l P_w"] = named["P_l"] @ named["P_w"]
        projections.append(named)
    return projections


def from_identity(matrix: Tensor) -> float | None:
    """||P - I|| / ||I||, Frobenius: 0 for heads that don't talk. None where P is not square."""
    rows, columns = matrix.shape
    if rows != columns:
        return None
    return float((matrix - matrix.new_ones(rows).diag()).norm() / rows**0.5)


def off_diagonal(matrix: Tensor) -> float:
    """The share of the squared entries off the diagonal: 0 for a diagonal P, 1 - 1 / h on average for a random one."""
    total = matrix.square().sum()
    return float(1 - matrix.diagonal().square().sum() / total)


def partners(matrix: Tensor) -> float:
    """The effective number of heads that a head talks to: (sum p^2)^2 / sum p^4 a row, averaged.

    1 where each row has one entry, h where all are of one size, about h / 3 for normal ones.
    """
    square = matrix.square()
    return float((square.sum(1).square() / square.square().sum(1)).mean())
