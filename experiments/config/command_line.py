"""The arguments of `attn train`: separated into overrides and Hydra's flags, checked, and passed to `hydra.main`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString
from omegaconf import DictConfig

from experiments.config.groups import conf_for_hydra, groups, options
from experiments.config.hydra_messages import hydra_errors_as_mistakes, near_key
from experiments.config.primary import PRETRAINING, PRIMARIES, Primary
from experiments.data.errors import READS_COLUMN, reader_of
from experiments.failures.failure import Mistake, once
from experiments.failures.wording import closest, did_you_mean
from experiments.files.digest import digest
from experiments.settings.data import TABLES_OF_TEXT
from experiments.settings.plugins import module_file

MULTIRUN_FLAGS = {"--multirun", "-m"}
PRINTING_FLAGS = {"--cfg", "-c"}
INFO_FLAGS = {"--info", "-i"}
PACKAGE_FLAGS = {"--package", "-p"}
PRINTED_FLAGS = PACKAGE_FLAGS | {"--resolve"}  # what of the configuration is printed, and how
CONFIGURATION_FLAGS = PRINTING_FLAGS | INFO_FLAGS
HELP_FLAGS = {"--help", "-h"}
ASKING_FLAGS = CONFIGURATION_FLAGS | HELP_FLAGS | {"--hydra-help"}
FLAGS = MULTIRUN_FLAGS | ASKING_FLAGS | PRINTED_FLAGS
PRINTED = ("job", "hydra", "all")
INFORMATION = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
# the groups to whose options a user adds a module too, and its package
PACKAGES = {"variant": "attention", "objective": "experiments.objectives.kinds", "data": "experiments.data.kinds"}


class CommandLine(NamedTuple):
    """The arguments of a command that composes a configuration."""

    overrides: list[str]
    flags: list[str]  # Hydra's
    primary: Primary = PRETRAINING

    @property
    def sweep(self) -> str:
        """The name of the sweep, which depends on the overrides in any order, without Hydra's own."""
        relevant = sorted(text for text in self.overrides if not text.startswith(("hydra.", "hydra/")))
        return f"sweep-{digest(relevant)[:8]}"


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """(overrides, flags): Hydra wants all overrides in one piece. Raises Mistake for an unknown flag."""
    overrides, flags = [], []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        name, equals, value = argument.partition("=")
        if name not in FLAGS:
            setting = name.lstrip("-")
            if any(setting in primary.known_keys() for primary in PRIMARIES.values()):
                raise Mistake(f"there is no flag {argument}", f"a setting has no dashes: {setting}={value or 'VALUE'}")
            raise Mistake(
                f"there is no flag {argument}" + did_you_mean(name, [*FLAGS, "--dry-run", "--workers", "--per-device"])
            )
        flags.append(argument)
        # --info may have no value, and an override or the name of a run after it
        takes_next = name in PRINTING_FLAGS | PACKAGE_FLAGS or (
            name in INFO_FLAGS and rest and closest(rest[0], INFORMATION)
        )
        if takes_next and not equals and rest:
            flags.append(value := rest.pop(0))
        if value or equals or name not in INFO_FLAGS:
            _check_value(name, value, argument)
    asking = [flag for flag in flags if flag.split("=", 1)[0] in ASKING_FLAGS]
    if len(asking) > 1:
        raise Mistake(f"{' '.join(asking)}: give only one of them")
    printed = [flag for flag in flags if flag.split("=", 1)[0] in PRINTED_FLAGS]
    if printed and not any(flag.split("=", 1)[0] in PRINTING_FLAGS | HELP_FLAGS for flag in asking):
        raise Mistake(f"{printed[0]}: only --cfg uses it")
    running = [flag for flag in flags if flag in MULTIRUN_FLAGS]
    if running and any(flag.split("=", 1)[0] in CONFIGURATION_FLAGS for flag in asking):
        raise Mistake(
            f"{running[0]} {asking[0]}: {asking[0]} prints one configuration",
            f"leave {running[0]} out; --dry-run lists the cells of a sweep",
        )
    return overrides, flags


def _check_value(name: str, value: str, argument: str) -> None:
    """Raises Mistake for a value that a flag does not take, and for none where it needs one."""
    shown = argument if "=" in argument else f"{name} {value}".rstrip()
    if known := PRINTED if name in PRINTING_FLAGS else INFORMATION if name in INFO_FLAGS else ():
        if value not in known:
            raise Mistake(f"{shown}: the value must be one of {', '.join(known)}" + did_you_mean(value, known))
    elif name in PACKAGE_FLAGS:
        if not value:
            raise Mistake(f"{shown}: name a setting or a group, such as model")
    elif "=" in argument:
        raise Mistake(f"{shown}: {name} takes no value")


def question(flags: list[str]) -> str | None:
    """The flag that only asks for something about the configuration, such as --cfg; None if there is none."""
    return next((name for flag in flags if (name := flag.split("=", 1)[0]) in ASKING_FLAGS), None)


def value_of(names: set[str], flags: list[str]) -> str | None:
    """The value of the flag that has one of these names; None if it is not given."""
    for flag, following in zip(flags, [*flags[1:], ""], strict=True):
        name, equals, value = flag.partition("=")
        if name in names:
            return value if equals else following
    return None


def check_overrides(overrides: list[str], primary: Primary = PRETRAINING) -> list[Override]:
    """The parsed overrides. They set keys; they do not invent, remove or repeat them. Raises Mistake."""
    for text in overrides:
        if "=" not in text[1:] and not text.startswith("~"):
            raise Mistake(f"{text!r} is not an override", "write key=value, for example heads=24")
    with hydra_errors_as_mistakes(primary=primary):
        parsed = OverridesParser.create().parse_overrides(overrides)
    given: list[tuple[str, str]] = []
    for override, text in zip(parsed, overrides, strict=True):
        key = override.get_key_element().lstrip("+~")
        if f"{key}.".startswith("hydra.searchpath."):
            raise Mistake(
                f"{text}: only the files of conf/ are read",
                "plugins=FOLDER and --config-dir FOLDER add files of yours",
            )
        given.append((key, text))
        if key.startswith(("hydra.", "hydra/")):
            continue
        if override.is_add() or override.is_force_add() or override.is_delete():
            bare = text.lstrip("+~")
            right = f"write {bare}" if "=" in bare else f"leave it out, or write {bare}=VALUE"
            is_known = key in primary.groups or key in primary.known_keys()
            hint = right if is_known else near_key(key, primary=primary)
            raise Mistake(f"{text!r}: overrides set keys; they do not add or remove them", hint)
        if "@" in key:
            raise Mistake(f"{text!r}: a key cannot contain @", near_key(key.replace("@", ""), primary=primary))
        if key in ("variant.name", "variant.module"):
            raise Mistake(f"{text}: {key} belongs to the file of a variant", "choose the variant: variant=NAME")
        if key in primary.groups:
            _check_choice(override)
        elif key in groups():
            raise Mistake(f"there is no setting {key!r}", near_key(key, primary=primary))
    once(given)
    return parsed


def check_single(overrides: list[str], primary: Primary = PRETRAINING) -> list[Override]:
    """The parsed overrides of one configuration. Raises Mistake, also for one with several values."""
    parsed = check_overrides(overrides, primary)
    for text, override in zip(overrides, parsed, strict=True):
        if override.is_sweep_override():
            raise Mistake(f"{text}: one value is needed here", "to give a list write key=[a,b]")
    return parsed


def _check_choice(override: Override) -> None:
    """Raises Mistake for an option that a group does not have, because Hydra would read any file that a path leads
    to.
    """
    group, known = override.key_or_group, options(override.key_or_group)
    value = override.value()
    if isinstance(value, Glob):
        return
    for choice in value.list if isinstance(value, ChoiceSweep) else [value]:
        text = choice.text if isinstance(choice, QuotedString) else choice
        if text not in known:
            said = f"there is no {group} {'null' if text is None else repr(text)}"
            if str(text).isidentifier() and (file := module_file(f"{PACKAGES.get(group)}.{text}")):
                raise Mistake(said, f"{file} also needs a file conf/{group}/{text}.yaml")
            hint = f"there are: {', '.join(known)}"
            if group == "data" and (reader := _reader(str(text))):
                raise Mistake(said, f"{reader}; {hint}")
            raise Mistake(said + did_you_mean(str(text), known), hint)


def _reader(text: str) -> str:
    """What reads the text that stands where an option of `data` belongs, in a hint; empty if it names no text."""
    path = Path(text)
    if path.is_dir():
        tables = f"data=hub data.path={path} data.column=NAME reads the CSV, JSONL or Parquet files of the folder"
        return f"{tables}, and data=text 'data.train={path}/*' those of plain text"
    if path.suffix:
        return reader_of(path)
    if f".{text}" in TABLES_OF_TEXT:
        return f"{READS_COLUMN} such files, in a folder of their own"
    return f"data=hub data.path={text} data.column=NAME reads a data set of the hub" if "/" in text else ""


def quoted(text: str) -> str:
    """A text as Hydra's grammar reads it literally."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def hydra_main(task: Callable[[DictConfig], Any], line: CommandLine) -> None:
    """Hydra's own command line, as `python app.py OVERRIDES FLAGS`. Raises Mistake, and whatever `task` raises."""
    overrides, flags, primary = line
    arguments, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [f"attn {primary.command}", *overrides, *flags]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # documented: Hydra re-raises instead of printing and leaving
    try:
        with hydra_errors_as_mistakes(overrides, primary):
            hydra.main(config_path=conf_for_hydra(), config_name=primary.name, version_base="1.3")(task)()
    finally:
        sys.argv = arguments
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error
