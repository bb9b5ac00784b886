"""Discs with numbers that stay readable where they would lie on each other: they are moved apart, and a line leads from
each disc to its place.
"""

# G heads

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import CircleCollection, LineCollection
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

Array = npt.NDArray[np.floating[Any]]
Colour = tuple[float, ...]

DIAMETER = 13.0  # points
DARK = 0.45  # mean of red, green and blue below which a number is white
RING = 6  # places on the innermost ring around a disc; each further ring has as many more


def moved_apart(places: Array, diameter: float, low: Array, high: Array) -> Array:
    """The places [G, 2] of discs that don't lie on each other, each as near to its own place as is free.

    A disc that is nearer than `diameter` to an earlier one moves to a ring around its place, within the box from `low`
    [2] to `high` [2]. If nothing in the box is free, it stays.
    """
    moved = places.copy()
    settled: list[int] = []
    waiting: list[int] = []
    for number, place in enumerate(places):
        is_free = not settled or _nearest(place, places[settled]) >= diameter
        (settled if is_free else waiting).append(number)
    for number in waiting:
        moved[number] = _free_place(places[number], moved[settled], diameter, low, high)
        settled.append(number)
    return moved


def _free_place(place: Array, occupied: Array, diameter: float, low: Array, high: Array) -> Array:
    """The first free place on the rings around a place, from the innermost ring outwards, each from its top."""
    for ring in range(1, math.ceil(float(np.linalg.norm(high - low)) / diameter) + 1):
        angles = 2 * np.pi * np.arange(RING * ring) / (RING * ring)
        # a little more than a diameter between two rings, so that rounding lets neighbours fit
        around = place + 1.01 * ring * diameter * np.stack([np.sin(angles), np.cos(angles)], axis=1)
        for candidate in around[np.all((around >= low) & (around <= high), axis=1)]:
            if _nearest(candidate, occupied) >= diameter:
                return np.asarray(candidate)
    return place


def _nearest(place: Array, others: Array) -> float:
    return float(np.min(np.linalg.norm(others - place, axis=1)))


class NumberedDiscs(Artist):
    """Discs of one size with their numbers, at points [G, 2] of the axes' data.

    They are moved apart whenever they are drawn, because only then the size and the limits of the axes are known.
    """

    def __init__(self, axes: Axes, points: Array, numbers: Sequence[int], colours: Sequence[Colour]) -> None:
        super().__init__()
        self.set_zorder(3)
        self.points = points
        self.lines = LineCollection([], colors=[*colours], linewidths=0.8, alpha=0.7)
        self.discs = CircleCollection([DIAMETER**2], facecolors=[*colours], linewidths=0)
        self.discs.set_offset_transform(IdentityTransform())
        self.texts = [
            Text(0, 0, str(number), color="white" if np.mean(colour[:3]) < DARK else "black", fontsize=7.5,
                 ha="center", va="center_baseline")
            for number, colour in zip(numbers, colours, strict=True)
        ]  # fmt: skip
        self.set_in_layout(False)
        axes.add_artist(self)
        for part in self._parts():
            part.set_figure(axes.figure)

    def _parts(self) -> list[Artist]:
        return [self.lines, self.discs, *self.texts]

    def draw(self, renderer: RendererBase) -> None:
        """Draw the discs, which are moved apart, and the lines to the places of those that were moved."""
        assert self.axes is not None
        places: Array = np.array(self.axes.transData.transform(self.points), dtype=float)
        diameter = float(np.asarray(renderer.points_to_pixels(DIAMETER), dtype=float))
        low, high = (np.array(corner, dtype=float) for corner in (self.axes.bbox.min, self.axes.bbox.max))
        moved = moved_apart(places, diameter, low + diameter / 2, high - diameter / 2)
        self.lines.set_segments([np.stack(ends) for ends in zip(places, moved, strict=True)])
        self.discs.set_offsets(moved)
        for text, place in zip(self.texts, moved, strict=True):
            text.set_position((float(place[0]), float(place[1])))
        for part in self._parts():
            part.draw(renderer)
