"""The interface of a table's source: runs of `attn train`, fine-tuned or not, or a function that is computed here.

A source knows its rows and, for each of their cells, the outcome, the cost, and how to make it. Everything else about
tables is the same for all sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rich.console import Console

from experiments.cells.resources import Workers
from experiments.record.result import UNKNOWN, Fields
from experiments.settings.run import Settings
from experiments.tables.sources.step_clock import StepClock

State = Literal["missing", "begun", "pretrained", "done", "diverged", "failed", "refused"]
TO_TRAIN: tuple[State, ...] = ("missing", "begun")  # states of a cell whose training begins or goes on
TO_MAKE: tuple[State, ...] = (*TO_TRAIN, "pretrained")  # and whose model is to be fine-tuned or measured
ENDED: tuple[State, ...] = ("done", "diverged")  # states of a cell that needs no further training
Value = str | int | float | None


@dataclass(frozen=True)
class TableCell:
    """A row with a seed: one run, or one call of a function."""

    row: str
    seed: int
    name: str  # of its run folder, or of its file


@dataclass(frozen=True)
class CellOutcome:
    """The outcome of a cell: its result with numbers of its own, or the reason why there are none."""

    state: State
    reason: str = ""
    result: Fields = field(default_factory=UNKNOWN.copy)


class Outcomes(dict[TableCell, CellOutcome]):
    """The outcomes of a source's cells for one report. Each is read once, when it is first asked for."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source

    def __missing__(self, cell: TableCell) -> CellOutcome:
        """Read the outcome of a cell, and keep it."""
        self[cell] = outcome = self._source.outcome(cell)
        return outcome


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of a cell on this machine; None for a number that is unknown."""

    seconds: float | None
    tokens: int | None = None
    peak_memory_bytes: int | None = None


class Source(Protocol):
    """The rows of a table.

    It is made from overrides by row and a folder, and its constructor refuses wrong ones.
    """

    def cells(self, seeds: Sequence[int]) -> list[TableCell]:
        """A cell for every row and seed. All rows of a seed stand before those of the next."""

    def kept_seeds(self) -> set[int]:
        """The seeds of everything in the runs' folder. For others, no cell has begun."""

    def timed(self, row: str) -> Settings | None:
        """The settings whose training step is timed for the row; None if the table is not about step times."""

    def trained(self, row: str) -> Sequence[Settings]:
        """The settings of everything that is trained for the row, which are those of its cells except the seed."""

    def check(self) -> None:
        """Raises Mistake or DataError for everything that is certain to fail, before anything is made."""

    def outcome(self, cell: TableCell) -> CellOutcome:
        """The outcome of a cell so far."""

    def sizes(self, row: str) -> dict[str, Value]:
        """The row's columns that are known without a measurement: variant, h_k, ..., parameters, multiplications."""

    def predict(self, cell: TableCell, clock: StepClock, roughly: bool = False) -> Prediction:
        """The predicted cost of a cell. With `roughly`, it is made without timing a step of this cell."""

    def at_once(self, cells: Sequence[TableCell], workers: Workers) -> int:
        """The number of these cells that `make` trains side by side.

        Raises Mistake if there is no room for so many workers.
        """

    def make(self, cells: Sequence[TableCell], group: str, console: Console, workers: Workers = "auto") -> None:
        """Make the missing cells in order, `workers` at once.

        A cell that fails gets an outcome with the reason. Raises Interrupted.
        """
