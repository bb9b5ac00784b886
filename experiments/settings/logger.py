"""The mirrors of the run folder."""

from __future__ import annotations

from typing import Literal

from experiments.settings.group import Group, Text


class Logger(Group):
    """W&B, TensorBoard and trackio, each a mirror of the run folder; any of them together."""

    wandb: Literal["auto", "offline", "online", "off"]  # auto: online when logged in
    tensorboard: bool  # in the folder tensorboard of the runs
    trackio: bool  # in the folder trackio of the runs
    project: Text  # of W&B and trackio
    entity: Text | None  # of W&B; null: the account's own
    group: Text | None  # of W&B and trackio; null: the sweep's name
    tags: list[str]  # of the run in W&B
