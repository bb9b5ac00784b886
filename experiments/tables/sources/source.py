"""Where a table's numbers come from: runs of `attn train`, fine-tuned or not, or a function that is computed here.

A source knows its cells, what each came to, what it will cost, and how to make what is missing. Everything else about
tables is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from rich.console import Console

State = Literal["done", "diverged", "failed", "missing", "pretrained", "refused"]


@dataclass(frozen=True)
class Cell:
    row: str
    seed: int
    name: str  # of its folder
    what: Any  # what the source makes it from


@dataclass(frozen=True)
class Finding:
    """What a cell came to: a result as in `result.json`, or why there is none."""

    state: State
    reason: str = ""
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction:
    """Of one cell on this machine."""

    seconds: float | None
    tokens: int | None
    peak_memory_bytes: int | None


class Source(Protocol):
    def cells(self, rows: Mapping[str, list[str]], seeds: Sequence[int], runs: Path) -> list[Cell]:
        """The cells of rows given by their words; all rows of a seed before those of the next. Raises Mistake."""

    def check(self, cells: list[Cell]) -> None:
        """Raises Mistake or DataError for what can be known to fail before anything is made."""

    def finding(self, cell: Cell) -> Finding: ...

    def sizes(self, cell: Cell) -> dict[str, Any]:
        """What a row's columns say before anything is measured: variant, h_k, ..., parameters, multiplies."""

    def predict(self, cell: Cell, console: Console, roughly: bool = False) -> Prediction:
        """What it will cost; roughly: without a measurement of its own."""

    def make(self, cells: list[Cell], group: str, console: Console) -> None:
        """Make what is missing, in order; what fails leaves a finding that says so. Raises sweep's Interrupted."""
