"""Where a table's numbers come from: runs of `attn train`, fine-tuned or not, or a function that is computed here.

A source knows its cells, what each came to, what it will cost, and how to make what is missing. Everything else about
tables is the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rich.console import Console

from experiments.launch.resources import Workers
from experiments.settings.run import Settings

State = Literal["done", "diverged", "failed", "missing", "pretrained", "refused"]
Value = str | int | float | None


@dataclass(frozen=True)
class Cell:
    """A row with a seed: one run, or one call of a function."""

    row: str
    seed: int
    name: str  # of its run folder, or of its file


@dataclass(frozen=True)
class CellOutcome:
    """What a cell came to: a result as in `result.json`, or why there is none."""

    state: State
    reason: str = ""
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction:
    """What a cell will cost on this machine; None for what can't be told."""

    seconds: float | None
    tokens: int | None = None
    peak_memory_bytes: int | None = None


class Source(Protocol):
    """The cells of a table's rows. It is made of overrides by row, seeds and a folder, and refuses what is wrong."""

    @property
    def cells(self) -> Sequence[Cell]:
        """A cell for every row and seed; all rows of a seed before those of the next."""

    def with_seeds(self, seeds: Sequence[int]) -> Source:
        """The same rows with other seeds."""

    def timed(self, row: str) -> Settings | None:
        """The settings whose training step is the row's; None where nothing is trained."""

    def check(self) -> None:
        """Raises Mistake or DataError for what can be known to fail before anything is made."""

    def outcome(self, cell: Cell) -> CellOutcome:
        """What a cell has come to so far."""

    def sizes(self, row: str) -> dict[str, Value]:
        """What a row's columns say before anything is measured: variant, h_k, ..., parameters, multiplies."""

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        """What a cell will cost; roughly: without a measurement of its own."""

    def make(self, cells: Sequence[Cell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Make what is missing, in order, `workers` cells at once.

        What fails leaves an outcome that says so. Raises Interrupted.
        """
