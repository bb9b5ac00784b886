"""The cells of a sweep, planned from overrides, each composed and checked before the first one trains."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from experiments.config.command_line import MULTIRUN_FLAGS, check_overrides, hydra_main
from experiments.config.compose import compose_raw, resolve
from experiments.measure.cores import check_threads
from experiments.model.kernel import check_kernel
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.run_length import planned_steps


@dataclass(frozen=True)
class Plan:
    """What a command line asks for.

    `cells` is empty where only the sweeper knows them, one trial after the other.
    """

    cells: list[Settings]
    is_sweep: bool
    launcher: str
    sweeper: str
    runs: str  # folder of the run folders

    @property
    def runs_here(self) -> bool:
        """Whether our own runner trains the cells, one process after the other, rather than a launcher of Hydra's."""
        return self.launcher == "basic" and self.sweeper == "basic"


def plan(overrides: list[str], flags: list[str], name: str = "config") -> Plan:
    """Compose and check every cell, each once. Raises Mistake that names each wrong cell."""
    parsed = check_overrides(overrides, name)
    swept = {each.key_or_group for each in parsed if each.is_sweep_override()}
    if not flags and not swept:
        composed = compose_raw(overrides, with_hydra=True, name=name)
        if composed.hydra.mode is not RunMode.MULTIRUN:
            with open_dict(composed):
                del composed["hydra"]
            settings = resolve(composed)
            _check_cell(settings, runs_here=True)
            return Plan([settings], is_sweep=False, launcher="basic", sweeper="basic", runs=settings.runs)
    launcher, sweeper, is_sweep, runs = _choices(overrides, flags, name)
    if is_sweep and sweeper != "basic":
        return Plan([], True, launcher, sweeper, runs)
    cells: list[Settings] = []
    wrong: list[str] = []

    def collect(config: DictConfig) -> None:
        context = HydraConfig.get()
        label = " ".join(override for override in context.overrides.task if override.split("=", 1)[0] in swept)
        try:
            settings = resolve(config)
            _check_cell(settings, runs_here=launcher == "basic")
        except Mistake as mistake:
            wrong.append(f"{label}: {mistake}" if label else str(mistake))
        else:
            cells.append(settings)

    with tempfile.TemporaryDirectory() as scratch:  # Hydra notes a sweep down; this pass leaves nothing behind
        hydra_main(collect, _planned_here(overrides, scratch) if is_sweep else overrides, flags, name)
    if wrong:
        count = f"{len(wrong)} of {len(wrong) + len(cells)} cells are wrong; none was started"
        raise Mistake("\n".join(wrong), count if swept else "")
    return Plan(_distinct(cells), is_sweep, launcher, sweeper, runs)


def _check_cell(settings: Settings, *, runs_here: bool) -> None:
    """Raises Mistake for a run that nothing ends; where it runs here, for a kernel or cores that are not there."""
    planned_steps(settings)
    # a launcher of Hydra's may train on other machines than this one
    if runs_here:
        check_threads(settings.trainer.threads)
        check_kernel(settings)


def _planned_here(overrides: list[str], scratch: str) -> list[str]:
    """The overrides of a sweep with Hydra's basic launcher, which calls a function for each cell in this process."""
    launcher = ("hydra/launcher", "hydra.launcher.")
    without_launcher = [override for override in overrides if not override.lstrip("+").startswith(launcher)]
    return [*without_launcher, "hydra/launcher=basic", f"hydra.sweep.dir={scratch}"]


def check_data(cells: list[Settings]) -> None:
    """Raises DataError for text that isn't there; what is on the hub is asked for when a cell needs it."""
    distinct = {(repr(getattr(cell, "task", cell.data)), cell.cache): cell for cell in cells}
    for cell in distinct.values():
        task_of(cell).identity()


def in_sweep(settings: Settings, name: str) -> Settings:
    """The settings with the sweep's name as a tag in W&B, and as the group unless the user named one."""
    logger = settings.logger
    labels = {"group": logger.group or name, "tags": [*logger.tags, name]}
    return settings.model_copy(update={"logger": logger.model_copy(update=labels)})


def _distinct(cells: list[Settings]) -> list[Settings]:
    return [cell for index, cell in enumerate(cells) if cell not in cells[:index]]


def _choices(overrides: list[str], flags: list[str], name: str) -> tuple[str, str, bool, str]:
    """(launcher, sweeper, whether it is a sweep, runs), from the overrides and from the overlays that they name."""
    keys = ("hydra/launcher=", "hydra/sweeper=", "hydra.mode=", "experiment=", "runs=")
    deciding = [override for override in overrides if override.startswith(keys) and "," not in override]
    composed = compose_raw(deciding, with_hydra=True, name=name)
    is_sweep = bool(MULTIRUN_FLAGS & set(flags)) or composed.hydra.mode is RunMode.MULTIRUN
    choices = composed.hydra.runtime.choices
    return choices["hydra/launcher"], choices["hydra/sweeper"], is_sweep, str(composed.runs)
