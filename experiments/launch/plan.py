"""The cells of a sweep, planned from overrides, each composed and checked before the first one trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import ValidationError

from experiments.config.check import sentences
from experiments.config.command_line import MULTIRUN_FLAGS, CommandLine, check_overrides
from experiments.config.compose import compose_raw, resolve
from experiments.config.composer import Composer
from experiments.config.grid import Combination, grid
from experiments.config.messages import hydra_errors_as_mistakes
from experiments.config.primary import Primary
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.launch.check_cells import check_cell, refuse
from experiments.launch.hydra_settings import (
    RAY,
    SEARCH,
    check_one_value,
    check_single_run,
    chosen,
    hydra_settings,
    starts_jobs,
    without_details,
    written,
)
from experiments.record.result_numbers import not_one_number
from experiments.search.space import Space, space_of
from experiments.settings.group import Group
from experiments.settings.ray_cluster import RayCluster
from experiments.settings.run import Settings
from experiments.settings.search import Search

G = TypeVar("G", bound=Group)


class PlannedSearch(NamedTuple):
    """The goal of a search, and the space that it draws from."""

    search: Search
    space: Space


@dataclass(frozen=True)
class Plan:
    """The plan of a command line.

    `cells` is empty if only the sweeper knows them, one trial after the other. For a search of ours, they are the cells
    at the ends of its space.
    """

    command: CommandLine  # Hydra's launchers and a search read it again
    cells: list[Settings]
    is_sweep: bool
    launcher: str
    sweeper: str
    runs: str  # where the run folder of the first cell is, and the sweep's own files
    search: PlannedSearch | None = None
    ray: RayCluster | None = None  # where the cells are tasks of Ray

    @property
    def runs_here(self) -> bool:
        """Whether our own runner trains the cells, rather than a launcher of Hydra's."""
        return self.launcher == "basic" and not starts_jobs(self.launcher, self.sweeper)


def plan(command: CommandLine) -> Plan:
    """Compose and check every cell once. Raises Mistake that names each wrong cell."""
    overrides, flags, primary = command
    parsed = check_overrides(overrides, primary)
    check_one_value(parsed)
    if not flags and not any(override.is_sweep_override() for override in parsed):
        composed = compose_raw(without_details(parsed), primary, with_hydra=True)
        if composed.hydra.mode is not RunMode.MULTIRUN:
            check_single_run(parsed)
            with open_dict(composed):
                del composed["hydra"]
            settings = resolve(composed)
            check_cell(settings, runs_here=True)
            return Plan(command, [settings], is_sweep=False, launcher="basic", sweeper="basic", runs=settings.runs)
    hydra = hydra_settings(parsed, primary)
    launcher, sweeper = chosen(hydra)
    if not (MULTIRUN_FLAGS & set(flags) or hydra.mode is RunMode.MULTIRUN):
        # several values are refused, each by its key
        compose_raw(overrides, primary)
    if sweeper not in ("basic", SEARCH):
        if launcher == RAY:
            raise Mistake(f"hydra/sweeper={sweeper}: hydra/launcher={RAY} takes the cells of hydra/sweeper=basic only")
        return Plan(command, [], True, launcher, sweeper, _fixed_runs(parsed, primary))
    overridden = {override.key_or_group for override in parsed}
    of_overlay = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items() if key not in overridden]
    if sweeper == SEARCH:
        search = _planned_search(hydra.sweeper, launcher, [*of_overlay, *overrides])
        cells = _checked(_ends(search.space, primary), launcher)
        return Plan(command, cells, True, launcher, sweeper, cells[0].runs, search)
    ray = _ray_cluster(hydra.launcher) if launcher == RAY else None
    cells = _checked(grid([*of_overlay, *overrides], primary), launcher)
    return Plan(command, cells, True, launcher, sweeper, cells[0].runs, ray=ray)


def _planned_search(node: DictConfig, launcher: str, overrides: list[str]) -> PlannedSearch:
    """The search that Hydra's sweeper node requests. Raises Mistake."""
    check_installed("optuna", f"hydra/sweeper={SEARCH}", "optuna")
    if launcher != "basic":
        raise Mistake(
            f"hydra/launcher={launcher}: hydra/sweeper={SEARCH} trains its trials itself",
            "start the same command in each job; the jobs share the study",
        )
    search = _validated(Search, node, "sweeper")
    _check_objectives(search.objectives)
    return PlannedSearch(search, space_of(overrides))


def _check_objectives(names: Iterable[str]) -> None:
    """Raises Mistake for an objective that is not one number of `result.json`; `parameters` is their total."""
    for name in names:
        if wrong := not_one_number("parameters.total" if name == "parameters" else name):
            raise Mistake(f"hydra.sweeper: {wrong}")


def _ray_cluster(node: DictConfig) -> RayCluster:
    """The cluster that Hydra's node of the launcher describes. Raises Mistake."""
    check_installed("ray", f"hydra/launcher={RAY}", "ray")
    return _validated(RayCluster, node, "launcher")


def _validated(kind: type[G], node: DictConfig, name: str) -> G:
    """A node of Hydra's settings as settings of ours. Raises Mistake."""
    try:
        return kind.model_validate(OmegaConf.to_container(node, resolve=True))
    except ValidationError as errors:
        raise Mistake("\n".join(sentences(errors, kind, "hydra", name))) from errors


def _ends(space: Space, primary: Primary) -> Iterator[Combination]:
    composer = Composer(primary)
    for point in space.ends():
        label = " ".join(f"{key}={value}" for key, value in point.items())
        try:
            yield Combination(label, composer.compose(space.overrides(point)))
        except Mistake as mistake:
            yield Combination(label, mistake)


def _checked(grid: Iterable[Combination], launcher: str) -> list[Settings]:
    """The settings of the cells, each once. Raises Mistake that names each wrong one."""
    cells: list[Settings] = []
    wrong: list[str] = []
    for label, outcome in grid:
        try:
            if isinstance(outcome, Mistake):
                raise outcome
            check_cell(outcome, runs_here=launcher == "basic")
            cells.append(outcome)
        except Mistake as mistake:
            wrong.append(f"{label}: {mistake}" if label else str(mistake))
    refuse(wrong, len(wrong) + len(cells))
    return list({repr(cell.model_dump()): cell for cell in reversed(cells)}.values())[::-1]


def labelled_with_sweep(settings: Settings, name: str) -> Settings:
    """The settings with the sweep's name as a tag in W&B, and as the group unless the user named one."""
    logger = settings.logger
    labels = {"group": logger.group or name, "tags": [*logger.tags, name]}
    return settings.model_copy(update={"logger": logger.model_copy(update=labels)})


def _fixed_runs(parsed: list[Override], primary: Primary) -> str:
    """`runs`, as far as it is known before a sweeper chooses the cells. Raises Mistake."""
    swept = {override.key_or_group for override in parsed if override.is_sweep_override()}
    # a key may be one of a swept group's options alone
    fixed = [written(each) for each in parsed if each.key_or_group.split(".")[0] not in swept]
    config = compose_raw(fixed, primary)
    with hydra_errors_as_mistakes(fixed, primary):
        return str(config.runs)
