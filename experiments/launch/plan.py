"""The cells of a sweep, planned from overrides, each composed and checked before the first one trains."""

from __future__ import annotations

from dataclasses import dataclass

from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from experiments.config.command_line import MULTIRUN_FLAGS, check_overrides
from experiments.config.compose import compose_raw, resolve
from experiments.config.grid import grid
from experiments.measure.cores import check_threads
from experiments.model.kernel import check_kernel
from experiments.record.mirrors import check_loggers
from experiments.settings.extras import check_installed
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.run_length import planned_steps

MAX_CELLS_NAMED = 10  # wrong cells


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
    if not flags and not any(each.is_sweep_override() for each in parsed):
        composed = compose_raw(overrides, with_hydra=True, name=name)
        if composed.hydra.mode is not RunMode.MULTIRUN:
            with open_dict(composed):
                del composed["hydra"]
            settings = resolve(composed)
            _check_cell(settings, runs_here=True)
            return Plan([settings], is_sweep=False, launcher="basic", sweeper="basic", runs=settings.runs)
    hydra, runs = _hydra_settings(overrides, name)
    launcher, sweeper = hydra.runtime.choices["hydra/launcher"], hydra.runtime.choices["hydra/sweeper"]
    if not (MULTIRUN_FLAGS & set(flags) or hydra.mode is RunMode.MULTIRUN):
        # several values are refused, each by its key
        compose_raw(overrides, name=name)
    if sweeper != "basic":
        return Plan([], True, launcher, sweeper, runs)
    named = {each.key_or_group for each in parsed}
    of_overlay = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items() if key not in named]
    cells: list[Settings] = []
    wrong: list[str] = []
    for label, outcome in grid([*of_overlay, *overrides], name):
        try:
            if isinstance(outcome, Mistake):
                raise outcome
            _check_cell(outcome, runs_here=launcher == "basic")
            cells.append(outcome)
        except Mistake as mistake:
            wrong.append(f"{label}: {mistake}" if label else str(mistake))
    if wrong:
        total = len(wrong) + len(cells)
        more = [f"and {len(wrong) - MAX_CELLS_NAMED:,} more"] if len(wrong) > MAX_CELLS_NAMED else []
        count = f"{len(wrong):,} of {total:,} cells are wrong; none was started" if total > 1 else ""
        raise Mistake("\n".join([*wrong[:MAX_CELLS_NAMED], *more]), count)
    return Plan(_distinct(cells), True, launcher, sweeper, runs)


def _check_cell(settings: Settings, *, runs_here: bool) -> None:
    """Raises Mistake for a run that nothing ends; where it runs here, for a kernel, cores or a logger not there."""
    planned_steps(settings)
    # a launcher of Hydra's may train on other machines than this one
    if runs_here:
        check_threads(settings.trainer.threads)
        check_kernel(settings)
        check_loggers(settings.logger)


def check_data(cells: list[Settings]) -> None:
    """Raises DataError for text that isn't there; what is on the hub is asked for when a cell needs it."""
    distinct = {(repr(getattr(cell, "task", cell.data)), cell.cache): cell for cell in cells}
    for cell in distinct.values():
        task_of(cell).identity()


def labelled_with_sweep(settings: Settings, name: str) -> Settings:
    """The settings with the sweep's name as a tag in W&B, and as the group unless the user named one."""
    logger = settings.logger
    labels = {"group": logger.group or name, "tags": [*logger.tags, name]}
    return settings.model_copy(update={"logger": logger.model_copy(update=labels)})


def _distinct(cells: list[Settings]) -> list[Settings]:
    return list({repr(cell.model_dump()): cell for cell in reversed(cells)}.values())[::-1]


def _hydra_settings(overrides: list[str], name: str) -> tuple[DictConfig, str]:
    """Hydra's own settings and `runs`, from the overrides that decide them and from the overlays that they name."""
    keys = ("hydra/launcher=", "hydra/sweeper=", "hydra.mode=", "experiment=", "runs=")
    deciding = [override for override in overrides if override.startswith(keys) and "," not in override]
    for override in deciding:
        if override.startswith("hydra/launcher=submitit_"):
            check_installed("slurm", override, "submitit")
    composed = compose_raw(deciding, with_hydra=True, name=name)
    return composed.hydra, str(composed.runs)
