"""A cluster of Ray, as `hydra/launcher=ray` describes it."""

from __future__ import annotations

from experiments.settings.group import Count, Group, NonNegative, Positive, Size, Text


class RayCluster(Group):
    """The address of a cluster of Ray, and what each cell needs of it."""

    address: Text | None  # None: this machine alone
    cpus: Size | None  # None: trainer.threads for each of its devices
    gpus: NonNegative | None  # None: one for each device of a cell on GPUs
    resources: dict[str, Positive] | None  # by the name that the nodes give them; None: no others
    retries: Count  # of a cell whose worker dies
