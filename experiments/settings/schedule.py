"""The course of the learning rate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.settings.group import Count, Group, Share


class Decay(Group):
    """Warm-up, then a decay over the planned steps."""

    kind: Literal["linear", "cosine"]
    warmup_steps: Count  # steps in which the learning rate rises from 0 in a line
    final: Share  # learning rate at the end, as a share of the peak


class Endless(Group):
    """Warm-up, then a course that needs no end."""

    kind: Literal["inverse_sqrt", "constant"]
    warmup_steps: Count  # steps in which the learning rate rises from 0 in a line


Schedule = Annotated[Decay | Endless, Field(discriminator="kind")]
