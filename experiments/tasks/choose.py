"""The choice of a configuration's task."""

from __future__ import annotations

from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.run import Settings
from experiments.tasks.finetuning.task import Finetuning
from experiments.tasks.pretraining import Pretraining
from experiments.tasks.task import Task


def task_of(settings: Settings) -> Task:
    """The task of a run. Torch is imported only when a model or an objective is requested."""
    return Finetuning(settings) if isinstance(settings, FinetuningSettings) else Pretraining(settings)
