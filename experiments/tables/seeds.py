"""Which seeds a table and each of its rows have: those asked for, those begun before, those finished."""

from __future__ import annotations

from collections.abc import Iterable
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


def spans(seeds: Iterable[int]) -> str:
    """Seeds in order, runs of neighbours as FIRST-LAST."""
    found: list[list[int]] = []
    for seed in sorted(seeds):
        if found and seed == found[-1][-1] + 1:
            found[-1].append(seed)
        else:
            found.append([seed])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in found)


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds with their noun: `seed 3`, `seeds 0-2`."""
    seeds = set(seeds)
    return f"seed{'s' if len(seeds) > 1 else ''} {spans(seeds)}"
