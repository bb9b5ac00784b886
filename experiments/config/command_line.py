"""The arguments of `attn train`: separated into overrides and Hydra's flags, checked, and passed to `hydra.main`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString
from omegaconf import DictConfig

from experiments.config.expressions import lines_in_words
from experiments.config.groups import conf_for_hydra, groups, options
from experiments.config.messages import hydra_errors_as_mistakes, near_key
from experiments.config.primary import PRETRAINING, PRIMARIES, Primary
from experiments.failures.failure import Mistake, once
from experiments.failures.wording import did_you_mean
from experiments.files.digest import digest

# flags of Hydra that take the next argument as their value
VALUE_FLAGS = {"--cfg", "-c", "--package", "-p"}
INFO_VALUES = {"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}
MULTIRUN_FLAGS = {"--multirun", "-m"}
RUNNING_FLAGS = MULTIRUN_FLAGS | {"--run", "-r"}
PRINTING_FLAGS = {"--cfg", "-c"}
PRINTED_FLAGS = {"--resolve", "--package", "-p"}  # what of the configuration is printed, and how
CONFIGURATION_FLAGS = PRINTING_FLAGS | {"--info", "-i"}
HELP_FLAGS = {"--help", "-h"}
ASKING_FLAGS = CONFIGURATION_FLAGS | HELP_FLAGS | {"--hydra-help", "--version", "--shell-completion", "-sc"}
FLAGS = VALUE_FLAGS | RUNNING_FLAGS | ASKING_FLAGS | PRINTED_FLAGS


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
        name, _, value = argument.partition("=")
        if name not in FLAGS:
            setting = name.lstrip("-")
            if any(setting in primary.known_keys() for primary in PRIMARIES.values()):
                raise Mistake(f"there is no flag {argument}", f"a setting has no dashes: {setting}={value or 'VALUE'}")
            raise Mistake(
                f"there is no flag {argument}" + did_you_mean(name, [*FLAGS, "--dry-run", "--workers", "--per-device"])
            )
        flags.append(argument)
        if rest and (argument in VALUE_FLAGS or (argument in ("--info", "-i") and rest[0] in INFO_VALUES)):
            flags.append(rest.pop(0))
    asking = [flag for flag in flags if flag.split("=", 1)[0] in ASKING_FLAGS]
    if len(asking) > 1:
        raise Mistake(f"{' '.join(asking)}: give only one of them")
    printed = [flag for flag in flags if flag.split("=", 1)[0] in PRINTED_FLAGS]
    if printed and not any(flag.split("=", 1)[0] in PRINTING_FLAGS | HELP_FLAGS for flag in asking):
        raise Mistake(f"{printed[0]}: only --cfg uses it")
    running = [flag for flag in flags if flag in RUNNING_FLAGS]
    if running and any(flag.split("=", 1)[0] in CONFIGURATION_FLAGS for flag in asking):
        raise Mistake(
            f"{running[0]} {asking[0]}: {asking[0]} prints one configuration",
            f"leave {running[0]} out; --dry-run lists the cells of a sweep",
        )
    return overrides, flags


def question(flags: list[str]) -> str | None:
    """The flag that only asks for something about the configuration, such as --cfg; None if there is none."""
    return next((name for flag in flags if (name := flag.split("=", 1)[0]) in ASKING_FLAGS), None)


def answer(line: CommandLine) -> None:
    """Print Hydra's answer to flags that only ask. Raises Mistake, and OSError if nobody reads the output."""
    # all at once: Hydra's logging would print a traceback for each line that nobody reads
    answered = io.StringIO()
    try:
        with redirect_stdout(answered):
            hydra_main(lambda config: None, line)
    finally:
        output = answered.getvalue()
        print(lines_in_words(output) if HELP_FLAGS & {*line.flags} else output, end="", flush=True)


def check_overrides(overrides: list[str], primary: Primary = PRETRAINING) -> list[Override]:
    """The parsed overrides. They set keys; they do not invent, remove or repeat them. Raises Mistake."""
    for text in overrides:
        if "=" not in text[1:] and not text.startswith("~"):
            raise Mistake(f"{text!r} is not an override", "write key=value, for example heads=24")
        if text.startswith("hydra.searchpath"):
            raise Mistake(
                f"{text}: only the files of conf/ are read",
                "plugins=FOLDER and --config-dir FOLDER add files of yours",
            )
    with hydra_errors_as_mistakes():
        parsed = OverridesParser.create().parse_overrides(overrides)
    given: list[tuple[str, str]] = []
    for override, text in zip(parsed, overrides, strict=True):
        key = override.get_key_element().lstrip("+~")
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
        given.append((key, text))
        if key in primary.groups:
            _check_choice(override)
        elif key in groups():
            raise Mistake(f"there is no setting {key!r}", near_key(key, primary=primary))
    once(given)
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
            shown = "null" if text is None else repr(text)
            raise Mistake(
                f"there is no {group} {shown}" + did_you_mean(str(text), known), f"there are: {', '.join(known)}"
            )


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
