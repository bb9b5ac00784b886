"""The files of a composed configuration, which a message about a wrong setting names if the setting is from one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from experiments.config.check import Error, WrongSettings, has
from experiments.config.groups import conf_for_hydra
from experiments.config.primary import Primary
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.settings.conf_files import conf_folders, read_conf, shown, yaml_file

Keys = tuple[int | str, ...]  # that lead to a setting


class File(NamedTuple):
    """A file of a configuration."""

    name: str  # in messages
    tree: dict[Any, Any]  # its values, where they stand in the configuration


@contextmanager
def files_in_messages(overrides: Sequence[str], primary: Primary) -> Iterator[None]:
    """A block that checks the configuration of these overrides, in which a mistake names the file that has it."""
    try:
        yield
    except WrongSettings as wrong:
        choice = [text for text in overrides if text.partition("=")[0] in primary.groups]
        given = [text.partition("=")[0] for text in overrides if text not in choice]
        of_files = [error for error in wrong.errors if not _is_of_command(error, given)]
        files = _files(primary.name, tuple(choice), tuple(conf_folders())) if of_files else []
        lines = [_with_file(error, files) if error in of_files else error.text for error in wrong.errors]
        raise Mistake("\n".join(lines)) from wrong


@functools.lru_cache
def _files(primary: str, choice: Sequence[str], folders: Sequence[Path]) -> list[File]:
    """The files that Hydra merges for a choice of options, the last one last, without its own. Raises Mistake."""
    with hydra.initialize_config_dir(conf_for_hydra(), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        merged = loader.compute_defaults_list(primary, [*choice], RunMode.RUN).defaults
    files = []
    for each in merged:
        group, _, option = (each.config_path or "").rpartition("/")
        path = yaml_file(group, option)
        if path.is_file() and isinstance(tree := read_conf(path), dict):
            for part in reversed(each.package.split(".") if each.package else ()):
                tree = {part: tree}
            files.append(File(shown(path), tree))
    return files


def _is_of_command(error: Error, given: Sequence[str]) -> bool:
    """Whether an error is about a key that a command gives, or about several settings at once."""
    key = ".".join(map(str, error.path))
    return error.kind == "value_error" or any(f"{key}.".startswith(f"{each}.") for each in given)


def _with_file(error: Error, files: Sequence[File]) -> str:
    """What is said of an error, with the last file that has the setting, or that has its group and lacks it."""
    place = error.path[:-1] if error.kind == "missing" else error.path
    having = [file for file in files if has(file.tree, place)]
    if not having or _is_computed(_at(having[-1].tree, place)):
        return error.text
    near = _near(place, files) if error.kind == "extra_forbidden" else ""
    return f"{having[-1].name}: {error.text}{near}"


def _near(path: Keys, files: Sequence[File]) -> str:
    """The nearest of the other keys that the files have beside an unknown one."""
    groups = [_at(file.tree, path[:-1]) for file in files if has(file.tree, path[:-1])]
    known = {str(key) for group in groups if isinstance(group, dict) for key in group if key != path[-1]}
    return did_you_mean(str(path[-1]), sorted(known))


def _at(tree: Any, path: Keys) -> Any:
    return _at(tree[path[0]], path[1:]) if path else tree


def _is_computed(value: object) -> bool:
    return not isinstance(value, dict) and "${" in str(value)
