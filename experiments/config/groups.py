"""The groups of `conf/` as Hydra sees them: their options, their keys, and the folders that the user adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from experiments.settings.plugins import CONF, conf_folders, yaml_files


class AddedFolders(SearchPathPlugin):
    """Makes Hydra also look for groups in the folders that the user adds, after its own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append them."""
        for folder in conf_folders()[1:]:
            search_path.append("plugins", f"file://{folder}")


def conf_for_hydra() -> str:
    """The folder that Hydra composes from; it then looks in the added ones too."""
    Plugins.instance().register(AddedFolders)
    # Hydra copies its one store whenever it looks into its files, and changes no copy
    ConfigStore.__deepcopy__ = lambda store, memo: store  # type: ignore[attr-defined]
    return str(CONF)


def groups() -> list[str]:
    """The names of the groups of `conf/`, in alphabetical order, without Hydra's own."""
    return sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")


def options(group: str) -> list[str]:
    """The names of the options of a group, in alphabetical order."""
    return sorted(path.stem for path in yaml_files(f"{group}/*.yaml"))


def known_keys(overrides: Iterable[str] = (), name: str = "config") -> list[str]:
    """Every dotted key of the configuration with the chosen groups; a group is also a key."""

    def walk(node: dict[Any, Any], prefix: str) -> Iterator[str]:
        for key, value in node.items():
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")

    groups_of_file = groups_of(name)
    choices = [f"{group}={option}" for group, option in _choices(overrides) if group in groups_of_file]
    with hydra.initialize_config_dir(conf_for_hydra(), version_base="1.3"):
        tree = OmegaConf.to_container(hydra.compose(name, choices), resolve=False)
    assert isinstance(tree, dict)
    return list(walk(tree, ""))


@cache
def groups_of(name: str) -> frozenset[str]:
    """The groups in the defaults list of a file of `conf/`, of items such as `_self_` and {"variant": "multi_head"}."""
    entries = OmegaConf.load(CONF / f"{name}.yaml").defaults
    return frozenset(str(key).split()[-1] for entry in entries if not isinstance(entry, str) for key in entry)


def _choices(overrides: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (group, option) for each override that chooses an option of a group."""
    for override in overrides:
        group, _, option = override.partition("=")
        if group in groups() and option in options(group):
            yield group, option
