"""Hydra's own settings: those that choose a launcher and a sweeper, and those that the chosen ones read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig

from experiments.config.compose import compose_raw
from experiments.config.primary import Primary
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.launch.launchers import launcher
from experiments.settings.group import Group
from experiments.settings.ray_cluster import RayCluster
from experiments.settings.search import Search

SEARCH = "optuna_search"  # our own sweeper
RAY = "ray"  # our own launcher
OURS: dict[str, type[Group]] = {RAY: RayCluster, SEARCH: Search}
CHOICES = ("hydra/launcher", "hydra/sweeper", "hydra.mode")
MODES = [mode.name for mode in RunMode]
OF_SWEEPS = ("hydra/launcher", "hydra/sweeper", "hydra.launcher", "hydra.sweeper")
# where Hydra starts the jobs: what it reads itself, and with its basic sweeper
READ_BY_HYDRA = (
    "hydra.job.env_set", "hydra.job.env_copy", "hydra.verbose", "hydra.hydra_logging", "hydra/hydra_logging",
)  # fmt: skip
READ_BY_BASIC_SWEEPER = ("hydra.sweeper.max_batch_size",)


class Chosen(NamedTuple):
    """The launcher and the sweeper that a command line chooses."""

    launcher: str
    sweeper: str

    def __str__(self) -> str:
        return f"hydra/launcher={self.launcher} hydra/sweeper={self.sweeper}"


def written(override: Override) -> str:
    """An override as the user wrote it."""
    assert override.input_line is not None  # the parser keeps it
    return override.input_line


def check_one_value(parsed: Iterable[Override]) -> None:
    """Raises Mistake for a setting of Hydra's with several values or none, one that is removed, and a wrong mode."""
    for override in parsed:
        has_none = override.is_delete() or (override.key_or_group in CHOICES and override.value() is None)
        if override.is_hydra_override() and (has_none or override.is_sweep_override()):
            raise Mistake(f"{written(override)}: each of Hydra's own settings has one value")
        if override.key_or_group == "hydra.mode" and override.value() not in MODES:
            meant = did_you_mean(str(override.value()), MODES)
            raise Mistake(f"{written(override)}: must be one of {', '.join(MODES)}{meant}")


def without_details(parsed: Iterable[Override]) -> list[str]:
    """The overrides; of Hydra's own, only those that choose."""
    return [written(each) for each in parsed if not _is_detail(each)]


def check_single_run(parsed: Iterable[Override]) -> None:
    """Raises Mistake for a setting of Hydra's that a single run does not read."""
    for override in parsed:
        if override.is_hydra_override() and override.key_or_group != "hydra.mode":
            hint = "add -m for a sweep" if override.key_or_group.startswith(OF_SWEEPS) else ""
            raise Mistake(f"{written(override)}: a single run does not read it", hint)


def hydra_settings(parsed: Sequence[Override], primary: Primary) -> DictConfig:
    """Hydra's own settings of a sweep, from the overrides and overlays that decide them.

    Raises Mistake, also for a setting that the chosen launcher and sweeper do not read.
    """
    deciding = [
        written(each)
        for each in parsed
        if each.key_or_group in (*CHOICES, "experiment") and not each.is_sweep_override()
    ]
    composed = _composed(deciding, primary)
    details = [each for each in parsed if _is_detail(each)]
    if not details:
        return composed
    for override in details:
        _check_read(override, chosen(composed))
    return _composed([*deciding, *(written(each) for each in details)], primary)


def chosen(hydra: DictConfig) -> Chosen:
    """The launcher and the sweeper that Hydra's own settings choose."""
    return Chosen(hydra.runtime.choices["hydra/launcher"], hydra.runtime.choices["hydra/sweeper"])


def _composed(overrides: list[str], primary: Primary) -> DictConfig:
    try:
        return compose_raw(overrides, primary, with_hydra=True).hydra
    except KeyError as error:
        # Hydra looks up these variables while it composes
        raise Mistake(f"hydra.job.env_copy: the environment has no {error.args[0]}") from error


def _is_detail(override: Override) -> bool:
    return override.is_hydra_override() and override.key_or_group not in CHOICES


def _check_read(override: Override, choice: Chosen) -> None:
    """Raises Mistake for a setting of Hydra's that the launcher and the sweeper do not read."""
    key, text = override.key_or_group, written(override)
    its_launcher, sweeper = choice
    _, node, name, *_ = *key.split("."), "", ""
    option = choice._asdict().get(node)
    if option in OURS:
        fields = OURS[option].model_fields
        if name and name not in fields:
            raise Mistake(f"there is no setting 'hydra.{node}.{name}'" + did_you_mean(name, fields))
        return
    if sweeper == "basic" and key.startswith("hydra.sweeper.params"):
        raise Mistake(
            f"{text}: with hydra/sweeper=basic, only an overlay sets it", "list the values in the overrides: seed=1,2"
        )
    # Hydra's own launchers and sweepers know their settings, but may not be replaced
    is_of_plugin = option not in (None, "basic") and name != "_target_"
    read = READ_BY_HYDRA + launcher(its_launcher).reads + READ_BY_BASIC_SWEEPER * (sweeper == "basic")
    is_read = is_of_plugin or any(f"{key}.".startswith(f"{each}.") for each in read)
    hydra_starts_jobs = its_launcher not in ("basic", RAY) or sweeper not in ("basic", SEARCH)
    if not (is_read and hydra_starts_jobs):
        hint = "runs=FOLDER is the folder of the runs" if key.endswith(".dir") else ""
        raise Mistake(f"{text}: {choice} do not read it", hint)
