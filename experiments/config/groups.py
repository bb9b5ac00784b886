"""The groups of `conf/` as Hydra sees them: their options, and the folders that the user adds."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from experiments.settings.conf_files import CONF, conf_folders, yaml_files


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
