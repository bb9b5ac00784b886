"""Schedules of the learning rate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.settings.group import Count, Group, Share


class Decay(Group):
    """Warm-up, then decay over the planned steps."""

    kind: Literal["linear", "cosine"]
    warmup_steps: Count  # steps in which the learning rate rises linearly from 0
    final: Share  # learning rate at the end, as a share of the peak


class Endless(Group):
    """Warm-up, then a schedule that does not depend on the number of steps."""

    kind: Literal["inverse_sqrt", "constant"]
    warmup_steps: Count  # steps in which the learning rate rises linearly from 0


Schedule = Annotated[Decay | Endless, Field(discriminator="kind")]
