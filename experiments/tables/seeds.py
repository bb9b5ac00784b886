"""The seeds of a table and of each of its rows: requested, begun and finished ones."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.failures.wording import plural
from experiments.tables.sources.source import Outcomes, Source

FIRST_SEEDS = 4  # of every row, before its spread is known well enough to say how many more it needs
BLOCK = 16  # seeds in a block; those after a block in which no cell has begun are none of the table's


def begun_seeds(source: Source, outcomes: Outcomes, least: int = 0) -> list[int]:
    """The seeds for which a cell has begun, in order: all before the seed `least`, and those after it up to a block of
    seeds for which none has.
    """
    seeds: list[int] = []
    next_block = -(-least // BLOCK)
    for seed in sorted(source.kept_seeds()):
        if seed // BLOCK > next_block:
            break
        if any(outcomes[cell].state != "missing" for cell in source.cells([seed])):
            seeds.append(seed)
            next_block = max(next_block, seed // BLOCK + 1)
    return seeds


def spans(seeds: Iterable[int]) -> str:
    """Seeds in order, with consecutive ones as FIRST-LAST."""
    stretches: list[list[int]] = []
    for seed in sorted(seeds):
        if stretches and seed == stretches[-1][-1] + 1:
            stretches[-1].append(seed)
        else:
            stretches.append([seed])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in stretches)


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds with their noun, such as `seed 3` and `seeds 0-2`."""
    seeds = set(seeds)
    return f"{plural('seed', len(seeds))} {spans(seeds)}"
