"""Which cells of a table have which value, in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.failures.wording import joined, plural
from experiments.tables.seeds import seeds_text


class Place(NamedTuple):
    """A cell, by what it may share with others."""

    scheme: str
    row: str
    seed: int


def with_cells(values: Mapping[Place, Any]) -> list[str]:
    """The distinct values that are known; if there are several, each with the cells that have it."""
    known = {place: value for place, value in values.items() if value not in (None, "")}
    places_of: dict[Any, list[Place]] = {}
    for place, value in known.items():
        places_of.setdefault(value, []).append(place)
    texts = {value: f"{value:,}" if isinstance(value, int) else str(value) for value in places_of}
    if len(texts) == 1:
        return [*texts.values()]
    return [f"{texts[value]} ({'; '.join(_described(places, known))})" for value, places in places_of.items()]


def _described(places: Sequence[Place], among: Collection[Place]) -> Iterator[str]:
    """Some of the cells, by the schemes, rows and seeds that distinguish them from the others."""
    chosen, every = _parts(places), _parts(among)
    told = zip(NAMES, chosen, every, strict=True)
    text = ", ".join(named([*part]) for named, part, whole in told if part.keys() != whole.keys())
    alike = sum(all(each in part for each, part in zip(place, chosen, strict=True)) for place in among)
    if alike == len(places):
        yield text
        return
    # they are not all combinations of these schemes, rows and seeds
    by = 0 if len(chosen[0]) > 1 else 1
    for name in chosen[by]:
        yield from _described([place for place in places if place[by] == name], among)


def _parts(places: Iterable[Place]) -> list[dict[Any, None]]:
    """The schemes, the rows and the seeds of cells, each once."""
    return [dict.fromkeys(part) for part in zip(*places, strict=True)]


def _rows(names: Sequence[str]) -> str:
    return f"{plural('row', len(names))} {joined(names)}"


NAMES: tuple[Callable[[Sequence[Any]], str], ...] = (joined, _rows, seeds_text)  # of the parts of a place
