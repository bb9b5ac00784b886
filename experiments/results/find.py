"""Run folders by their path, their name or the start of their name."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean

NUMBER = re.compile(r"(\d+)")
NO_RUNS = "attn train makes one; --runs names another folder"  # the hint where there is no run at all
CONFIG = "config.yaml"  # not that of `record`, whose imports would slow down completion
KEPT_HEADS = "heads.json"  # in the folder of a smaller model that `attn heads` wrote, which is no run


def find_runs(name: str, runs: Path) -> list[Path]:
    """The run folder with this path or name, or otherwise all whose names begin with it. Raises Mistake."""
    if not name.strip():
        raise Mistake("a run's name is empty", "`attn compare` lists the finished ones")
    path = Path(name)
    places = (path, runs / path)
    if exact := [folder for folder in places if _is_run(folder)]:
        return exact[:1]
    if smaller := next((folder for folder in places if _is(folder / KEPT_HEADS, Path.is_file)), None):
        raise Mistake(
            f"{smaller}: is a model from which `attn heads` removed heads, not a run; only `load_pruned` of "
            "experiments.heads.measures.pruning reads it"
        )
    folder = path.parent if len(path.parts) > 1 else runs
    # . and / have no name
    pattern = f"{path.name}*" if path.name else ""
    folders = sorted(each for each in folder.glob("*") if fnmatchcase(each.name, pattern) and _is_run(each))
    if not folders:
        known = sorted(each.name for each in folder.glob("*") if _is_run(each))
        hint = "`attn compare` lists the finished ones" if known else NO_RUNS
        if incomplete := next((place for place in places if path.name and _is(place, Path.is_dir)), None):
            raise Mistake(f"{incomplete}: is not a run, because it has no {CONFIG}", hint)
        meant = did_you_mean(path.name, _with_starts(known))
        raise Mistake(f"there is no run {name!r} {where(folder)}{meant}", hint)
    return folders


def find_each(names: Iterable[str], runs: Path) -> list[Path]:
    """The run folders of several names, in order, each once, even if it is named by its path and by its name.

    Raises Mistake for a name without a run.
    """
    folders: dict[Path, Path] = {}
    for name in names:
        for folder in find_runs(name, runs):
            folders.setdefault(folder.resolve(), folder)
    return [*folders.values()]


def is_name(word: str, runs: Path) -> bool:
    """Whether a word of a command names a run rather than a setting: without a `=`, or if there is such a folder."""
    return "=" not in word or any(map(_is_run, (Path(word), runs / word)))


def where(runs: Path) -> str:
    """`in runs/`, for a message that a run is not there, and why if there is no such folder."""
    if runs.is_dir():
        return f"in {runs}/"
    return f"in {runs}, which is not a folder" if runs.exists() else f"in {runs}/, which does not exist"


def names_with_start(start: str, runs: Path) -> list[str]:
    """The names of the runs in a folder that begin with `start`, in order, for completion in a shell."""
    return [folder.name for folder in folders_in(runs) if folder.name.startswith(start) and _is_run(folder)]


def folders_in(runs: Path) -> list[Path]:
    """What the folder of the runs contains, by name, where 6 heads come before 12; not everything must be a run."""
    return sorted(runs.iterdir(), key=_in_order) if runs.is_dir() else []


def find_run(name: str, runs: Path) -> Path:
    """The one run folder with this path, name or start of a name. Raises Mistake if there is none, or several."""
    folders = find_runs(name, runs)
    if len(folders) > 1:
        hint = "name one: " + ", ".join(path.name for path in folders[:5])
        raise Mistake(f"{name!r} is the start of {len(folders)} runs", hint)
    return folders[0]


def _with_starts(names: list[str]) -> list[str]:
    """The names, and their starts up to each `-`, because names are long and users type their start."""
    starts = ["-".join(name.split("-")[:count]) for name in names for count in range(1, name.count("-") + 1)]
    return list(dict.fromkeys([*names, *starts]))


def _in_order(path: Path) -> list[str | int]:
    """A key by which paths are sorted as people sort their names: parts that are numbers by their values."""
    # every second part is a number
    return [int(part) if place % 2 else part for place, part in enumerate(NUMBER.split(path.name))]


def _is_run(folder: Path) -> bool:
    return _is(folder / CONFIG, Path.is_file) and not _is(folder / KEPT_HEADS, Path.is_file)


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError as error:
        # no file has so long a name, but a filter may be as long
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
