"""The sections of the page, one file each; `SECTIONS` has them in their order."""

from __future__ import annotations

from experiments.heads.section import SectionMaker
from experiments.heads.sections import (
    distances,
    equal_start,
    gates,
    importance,
    maps,
    projections,
    rank,
    roles,
    syntax,
)

SECTIONS: tuple[SectionMaker, ...] = (
    maps.make,
    roles.make,
    syntax.make,
    distances.make,
    importance.make,
    gates.make,
    projections.make,
    rank.make,
    equal_start.make,
)
