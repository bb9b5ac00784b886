"""The mirrors of the run folder."""

from __future__ import annotations

from typing import Literal

from experiments.settings.group import Group, Text


class Logger(Group):
    """W&B, TensorBoard and trackio, each a mirror of the run folder; any of them together."""

    # where W&B keeps the run; auto: online if you are logged in and the server answers, else offline
    wandb: Literal["auto", "offline", "online", "off"]
    tensorboard: bool  # also log to the folder tensorboard of the runs
    trackio: bool  # also log to the folder trackio of the runs
    project: Text  # project in W&B and trackio
    entity: Text | None  # entity in W&B; null: that of the account
    group: Text | None  # group in W&B and trackio; null: the sweep's name
    tags: list[str]  # tags of the run in W&B
