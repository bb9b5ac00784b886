"""The mirror of the run folder in W&B."""

from __future__ import annotations

from typing import Literal

from experiments.settings.group import Group, Text


class Logger(Group):
    """W&B, a mirror of the run folder."""

    wandb: Literal["auto", "offline", "online", "off"]  # auto: online when logged in
    project: Text
    entity: Text | None
    group: Text | None  # null: the sweep's name
    tags: list[str]
