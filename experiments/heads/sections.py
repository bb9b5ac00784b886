"""The sections of the report, in their order."""

from __future__ import annotations

from experiments.heads.attending import distances, maps, roles, syntactic
from experiments.heads.section import Make
from experiments.heads.working import bottleneck, equal_start, gated, important, talking

SECTIONS: tuple[Make, ...] = (
    maps,
    roles,
    syntactic,
    distances,
    important,
    gated,
    talking,
    bottleneck,
    equal_start,
)
