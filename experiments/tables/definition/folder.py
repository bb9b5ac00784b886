"""The folder of the tables' files: `conf/table/PAPER/NAME.yaml`, with the paper's numbers in `published.yaml`.

`attn table shazeer2020/heads` is `conf/table/shazeer2020/heads.yaml`. A table needs nothing but its file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from experiments.config.validation_messages import sentences
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.settings.conf_files import CONF, conf_folders, read_conf, shown
from experiments.settings.group import Group

TABLES = CONF / "table"
PUBLISHED = "published"  # the YAML of a paper that is not a table
SHARED_LEARNING_RATES = TABLES / "nano" / "learning_rates.yaml"  # of families that occur in several tables

G = TypeVar("G", bound=Group)


def names() -> list[str]:
    """The names of all tables, as PAPER/NAME."""
    paths = (path for place in _places() for path in place.glob("*/*.yaml"))
    tables = (path for path in paths if path.stem not in (PUBLISHED, SHARED_LEARNING_RATES.stem))
    return sorted(f"{path.parent.name}/{path.stem}" for path in tables)


def files_start(name: str) -> str:
    """The start of the names of the files with a table's results, such as `shazeer2020_heads`."""
    return name.replace("/", "_")


def read(name: str, kind: type[G]) -> G:
    """The file of `PAPER/NAME`, validated as a `kind`. Raises Mistake that names every wrong key, or a missing file."""
    path = next((path for place in _places() if (path := place / f"{name}.yaml").is_file()), None)
    if path is None:
        raise Mistake(f"there is no file conf/table/{name}.yaml, here, in plugins=FOLDER or in --config-dir FOLDER")
    return checked(read_conf(path), kind, shown(path))


def _places() -> list[Path]:
    """The folder of the project, and those that the user adds."""
    return [TABLES, *(folder / "table" for folder in conf_folders()[1:])]


def checked(tree: object, kind: type[G], where: str) -> G:
    """`tree`, validated as a `kind`. Raises Mistake that names every wrong key."""
    if not isinstance(tree, dict):
        raise Mistake(f"{where}: has no keys; it must be a mapping, KEY: VALUE in each line")
    try:
        return kind.model_validate(tree)
    except ValidationError as errors:
        raise Mistake("\n".join(f"{where}: {line}" for line in sentences(errors, kind))) from errors


def check_name(name: str) -> None:
    """Raises Mistake for the name of a table that does not exist."""
    known = names()
    if name not in known:
        without_paper = {each.split("/")[1]: each for each in known}
        meant = did_you_mean(without_paper.get(name, name), known)
        hint = f"there are: {', '.join(known)}; plugins=FOLDER and --config-dir FOLDER add tables of yours"
        if (own := Path("conf", "table", f"{name}.yaml")).is_file():
            hint = f"--config-dir conf adds {own}; {hint}"
        raise Mistake(f"there is no table {name!r}{meant}", hint)


def published_file(name: str) -> str:
    """The name of the file with the published numbers of a table's paper."""
    return f"{Path(name).parent}/{PUBLISHED}"


# the tables of a list name a few sets, and reading the file takes as long as reading a table's
@cache
def learning_rates(name: str) -> dict[str, Any]:
    """The tuning of each family in a set of SHARED_LEARNING_RATES. Raises ValueError for an unknown set."""
    sets = read_conf(SHARED_LEARNING_RATES)
    if name not in sets:
        raise ValueError(
            f"{SHARED_LEARNING_RATES.name} has no set {name!r}{did_you_mean(name, sets)}; there are: {', '.join(sets)}"
        )
    tuning_set = sets[name]
    return {family: {"where": tuning_set["where"], **tuning} for family, tuning in tuning_set["families"].items()}
