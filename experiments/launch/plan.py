"""What a command line asks for: a single run, a sweep or a search, each cell checked before the first one trains."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import ValidationError

from experiments.cells.cell import folder_of
from experiments.config.command_line import MULTIRUN_FLAGS, CommandLine, check_overrides
from experiments.config.compose import compose_raw, resolve
from experiments.config.compose_many import Composer
from experiments.config.files_in_messages import files_in_messages
from experiments.config.grid import Combination, grid
from experiments.config.hydra_messages import hydra_errors_as_mistakes
from experiments.config.primary import Primary
from experiments.config.validation_messages import sentences
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.failures.unread import check_none_idle
from experiments.failures.wording import did_you_mean, joined
from experiments.files.digest import digest
from experiments.launch.check_cells import check_cell, refuse
from experiments.launch.hydra_settings import (
    RAY,
    SEARCH,
    Chosen,
    check_one_value,
    check_single_run,
    chosen,
    hydra_settings,
    without_details,
    written,
)
from experiments.record.dotted import leaves
from experiments.record.folder import SWEEPS
from experiments.record.result_numbers import FIELDS, OF_SOME_RUNS, not_one_number
from experiments.search.space import NumberRange, Space, space_of
from experiments.settings.group import Group
from experiments.settings.ray_cluster import RayCluster
from experiments.settings.run import Settings
from experiments.settings.search import Search

G = TypeVar("G", bound=Group)


class SingleRun(NamedTuple):
    """One run, which this process trains."""

    cells: list[Settings]  # the only one


class LocalSweep(NamedTuple):
    """Cells that our own runner trains side by side on this machine."""

    cells: list[Settings]
    name: str


class RaySweep(NamedTuple):
    """Cells that are tasks of Ray."""

    cells: list[Settings]
    name: str
    chosen: Chosen
    cluster: RayCluster


class HydraSweep(NamedTuple):
    """Cells that are jobs of Hydra's; none are known yet if one of its sweepers chooses them, one after the other."""

    cells: list[Settings]
    command: CommandLine  # Hydra reads it again
    chosen: Chosen
    runs: str  # where the run folder of the first cell is, and the sweep's own files


class OptunaSearch(NamedTuple):
    """Trials, which our own runner trains side by side on this machine; each is drawn from the space when it begins."""

    cells: list[Settings]  # those at the ends of the space
    command: CommandLine
    chosen: Chosen
    search: Search
    space: Space

    @property
    def folder(self) -> Path:
        """The folder of the study, which depends on the overrides, their values, and the objectives alone."""
        # a glob may match another option later, and an overlay may list another value
        values = {parameter.key: str(parameter) for parameter in self.space.parameters}
        identity = digest([self.command.sweep, values, self.search.objectives])
        return Path(self.cells[0].runs) / SWEEPS / f"search-{identity[:8]}"


Delegated = RaySweep | HydraSweep  # our own runner does not train the cells
Sweep = LocalSweep | Delegated | OptunaSearch
Plan = SingleRun | Sweep


def plan(command: CommandLine) -> Plan:
    """Compose and check every cell once. Raises Mistake that names each wrong cell."""
    overrides, flags, primary = command
    parsed = check_overrides(overrides, primary)
    check_one_value(parsed)
    if not MULTIRUN_FLAGS & set(flags) and not any(override.is_sweep_override() for override in parsed):
        composed = compose_raw(without_details(parsed), primary, with_hydra=True)
        if composed.hydra.mode is not RunMode.MULTIRUN:
            check_single_run(parsed)
            with open_dict(composed):
                del composed["hydra"]
            with files_in_messages(overrides, primary):
                settings = resolve(composed)
            check_none_idle(overrides, [settings.idle()])
            check_cell(settings, runs_here=True)
            return SingleRun([settings])
    hydra = hydra_settings(parsed, primary)
    launcher, sweeper = choice = chosen(hydra)
    if not (MULTIRUN_FLAGS & set(flags) or hydra.mode is RunMode.MULTIRUN):
        # several values are refused, each by its key
        compose_raw(overrides, primary)
    if sweeper not in ("basic", SEARCH):
        if launcher == RAY:
            raise Mistake(f"hydra/sweeper={sweeper}: hydra/launcher={RAY} takes the cells of hydra/sweeper=basic only")
        return HydraSweep([], command, choice, _fixed_runs(parsed, primary))
    overridden = {override.key_or_group for override in parsed}
    of_overlay = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items() if key not in overridden]
    if sweeper == SEARCH:
        search, space = _search(hydra.sweeper, launcher, overrides), space_of([*of_overlay, *overrides])
        cells = _checked(_ends(space, primary), launcher, overrides, are_all=False)
        _check_measured(search.objectives, cells)
        return OptunaSearch(cells, command, choice, search, space)
    combinations = grid([*of_overlay, *overrides], primary)
    if launcher == RAY:
        cluster = _ray_cluster(hydra.launcher)
        return RaySweep(_checked(combinations, launcher, overrides), command.sweep, choice, cluster)
    cells = _checked(combinations, launcher, overrides)
    if launcher == "basic":
        return LocalSweep(cells, command.sweep)
    return HydraSweep(cells, command, choice, cells[0].runs)


def _search(node: DictConfig, launcher: str, overrides: list[str]) -> Search:
    """The search that Hydra's sweeper node requests. Raises Mistake."""
    check_installed("optuna", f"hydra/sweeper={SEARCH}", "optuna")
    if launcher != "basic":
        raise Mistake(
            f"hydra/launcher={launcher}: hydra/sweeper={SEARCH} trains its trials itself",
            "start the same command in each job; the jobs share the study",
        )
    search = _validated(Search, node, "sweeper")
    _check_objectives(search)
    check_none_idle(overrides, [(each.within("hydra.sweeper") for each in search.idle())])
    return search


def _check_objectives(search: Search) -> None:
    """Raises Mistake for an objective that is not one number of `result.json`; `parameters` is their total."""
    for name, direction in search.objectives.items():
        if wrong := not_one_number("parameters.total" if name == "parameters" else name):
            raise Mistake(f"hydra.sweeper.{direction}: {wrong}")


def _check_measured(names: Iterable[str], cells: Iterable[Settings]) -> None:
    """Raises Mistake for an objective that a trial never has, such as a score without a task."""
    for name, cell in itertools.product(names, cells):
        if name.partition(".")[0] in OF_SOME_RUNS and name not in cell.measured:
            known = [*cell.measured, *(field for field in FIELDS if field not in OF_SOME_RUNS)]
            raise Mistake(
                f"hydra.sweeper: {name}: the trials have no such number" + did_you_mean(name, known),
                f"there are: {', '.join(known)}",
            )


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
            yield Combination(label, Mistake(_hinted(str(mistake), space)))


def _hinted(said: str, space: Space) -> str:
    """What is said of a point, with the way to draw whole numbers for each setting whose interval has others."""
    keys = "|".join(re.escape(each.key) for each in space.parameters if isinstance(each, NumberRange))
    return re.sub(rf"(?m)^({keys}) = .*: must be a whole number$", r"\g<0>; int(interval(...)) draws these", said)


def _checked(grid: Iterable[Combination], launcher: str, overrides: list[str], are_all: bool = True) -> list[Settings]:
    """The settings of the cells, each once. Raises Mistake that names each wrong one, or overrides that none reads.

    are_all: whether no other cells will follow.
    """
    cells: list[Settings] = []
    wrong: list[tuple[str, Mistake]] = []
    for label, outcome in grid:
        try:
            if isinstance(outcome, Mistake):
                raise outcome
            check_cell(outcome, runs_here=launcher == "basic")
            cells.append(outcome)
        except Mistake as mistake:
            wrong.append((label, mistake))
    refuse(wrong, len(wrong) + len(cells))
    check_none_idle(overrides, (cell.idle() for cell in cells), are_all)
    return _distinct(cells)


def _distinct(cells: Iterable[Settings]) -> list[Settings]:
    """The cells, each once. Raises Mistake for cells that differ only in settings on which no number of a run depends,
    because they have one run folder.
    """
    distinct: dict[Path, Settings] = {}
    for cell in cells:
        if (other := distinct.setdefault(folder_of(cell).path, cell)) is cell:
            continue
        both = zip(leaves(other.model_dump()), leaves(cell.model_dump()), strict=True)
        if differing := [key for (key, one), (_, two) in both if one != two]:
            these = "this" if len(differing) == 1 else "these"
            raise Mistake(
                f"{joined(differing)}: cells that differ only in {these} are one run",
                "give one value, or a sweep of each value a folder of its own, runs=FOLDER",
            )
    return list(distinct.values())


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
