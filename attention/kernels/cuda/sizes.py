"""The sizes of a problem, for which the programs are compiled."""

from __future__ import annotations

from typing import NamedTuple

from attention.kernels.cuda.library import Constants
from attention.kernels.problem import Problem


class Sizes(NamedTuple):
    """The sizes of a problem without dynamic projections, and what it asks for."""

    key_heads: int
    heads: int  # of the softmax
    value_heads: int
    key_size: int
    value_size: int
    causal: bool
    masked: bool
    dropout: bool

    @classmethod
    def of(cls, problem: Problem) -> Sizes:
        """The sizes of a problem."""
        query, value, projection = problem.query, problem.value, problem.logits_projection
        heads = query.shape[2] if projection is None or projection.static is None else projection.static.shape[1]
        sizes = (query.shape[2], heads, value.shape[2], query.shape[3], value.shape[3])
        return cls(*sizes, problem.causal, problem.mask is not None, problem.dropout > 0)

    @property
    def key_width(self) -> int:
        """K, as the products over features need it: a multiple of 16."""
        return -(-self.key_size // 16) * 16

    @property
    def value_width(self) -> int:
        """V, likewise."""
        return -(-self.value_size // 16) * 16

    def constants(self, x_tiles: int, y_tiles: int) -> Constants:
        """The constants that `block.h` asks for."""
        return (
            ("KEY_HEADS", self.key_heads), ("HEADS", self.heads), ("VALUE_HEADS", self.value_heads),
            ("KEY_SIZE", self.key_size), ("VALUE_SIZE", self.value_size), ("X_TILES", x_tiles), ("Y_TILES", y_tiles),
            ("CAUSAL", int(self.causal)), ("MASKED", int(self.masked)), ("DROPOUT", int(self.dropout)),
        )  # fmt: skip
