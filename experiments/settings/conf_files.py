"""The YAML files of settings: those in `conf/`, and those in the folders that the user adds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.files.project import ROOT
from experiments.files.written_yaml import read_yaml

CONF = ROOT / "conf"
GLOBAL = re.compile(r"^#\s*@package\s+_global_\s*$", re.MULTILINE)

_added: list[Path] = []


def conf_folders() -> list[Path]:
    """The folders that groups of settings are looked for in, the project's first."""
    return [CONF, *_added]


def add_conf_folders(folders: Iterable[Path]) -> None:
    """Look in these folders too."""
    _added.extend(folder for folder in folders if folder not in _added)


def yaml_files(pattern: str) -> list[Path]:
    """The YAML files of all folders that match a pattern, such as `variant/*.yaml`."""
    return [path for folder in conf_folders() for path in sorted(folder.glob(pattern))]


def yaml_file(group: str, option: str) -> Path:
    """The YAML file of an option of a group; a path in the project if there is none."""
    places = [folder / group / f"{option}.yaml" for folder in conf_folders()]
    return next((path for path in places if path.is_file()), places[0])


def is_global(path: Path) -> bool:
    """Whether the keys of an option's file are those of the whole configuration, not of the group: `@package _global_`.

    Raises OSError.
    """
    return GLOBAL.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def shown(path: Path) -> str:
    """A YAML file in messages: of the project from `conf/` on."""
    return f"conf/{path.relative_to(CONF)}" if path.is_relative_to(CONF) else str(path)


def read_conf(path: Path) -> Any:
    """The value of a YAML file of these folders. Raises Mistake."""
    return read_yaml(path, shown(path))
