"""Which seeds a table has: those that were asked for, and those of which a cell has been begun before."""

from __future__ import annotations

from itertools import count

from experiments.tables.sources.source import CellOutcome, Source

BLOCK = 16  # seeds that are looked for at once; the first block of which no cell has begun ends the search


def has_begun(outcome: CellOutcome) -> bool:
    """Whether anything of a cell is there."""
    return outcome.state != "missing" or bool(outcome.reason)


def begun_seeds(source: Source) -> list[int]:
    """The seeds from 0 on of which a cell has begun."""
    seeds: list[int] = []
    for first in count(0, BLOCK):
        block = source.with_seeds(range(first, first + BLOCK))
        begun = sorted({cell.seed for cell in block.cells if has_begun(block.outcome(cell))})
        if not begun:
            return seeds
        seeds += begun
    raise AssertionError("seeds are counted without end")
