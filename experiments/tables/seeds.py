"""Which seeds a table has: those that were asked for, and those of which a cell has been begun before."""

from __future__ import annotations

from itertools import count

from experiments.tables.sources.source import Finding, Source

BLOCK = 16  # seeds that are looked for at once; the first block of which no cell has begun ends the search


def has_begun(finding: Finding) -> bool:
    """Whether anything of a cell is there."""
    return finding.state != "missing" or bool(finding.reason)


def begun_seeds(source: Source) -> list[int]:
    """The seeds from 0 on of which a cell has begun."""
    seeds: list[int] = []
    for first in count(0, BLOCK):
        block = source.with_seeds(range(first, first + BLOCK))
        begun = sorted({cell.seed for cell in block.cells if has_begun(block.finding(cell))})
        if not begun:
            return seeds
        seeds += begun
    raise AssertionError("seeds are counted without end")
