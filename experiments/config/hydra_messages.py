"""Hydra's errors about a configuration, turned into mistakes that name the correct alternatives."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from experiments.config.groups import options
from experiments.config.primary import PRETRAINING, PRIMARIES, Primary
from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import install_line
from experiments.failures.wording import closest, did_you_mean, first_line
from experiments.record.dotted import keys_that_end_in
from experiments.settings.conf_files import read_conf, shown, yaml_file, yaml_files

# the options that the pages name, each with the extra that brings it; a plugin may add others
OF_HYDRA: dict[str, dict[str, str | None]] = {
    "hydra/launcher": {
        "basic": None, "joblib": "joblib", "submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray",
    },
    "hydra/sweeper": {"basic": None, "optuna_search": "optuna"},
}  # fmt: skip
# keys that the choice of an option of a group decides
DECIDED = {"name", "module", "kind"}


@contextmanager
def hydra_errors_as_mistakes(overrides: Iterable[str] = (), primary: Primary = PRETRAINING) -> Iterator[None]:
    """A block in which errors of Hydra, OmegaConf and YAML become Mistakes, explained with the chosen groups."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise Mistake(*_mistake_and_hint(error, overrides, primary)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # only an error with a mark names the file
        mark = getattr(error, "problem_mark", None)
        for path in [Path(mark.name)] if mark else yaml_files("**/*.yaml"):
            read_conf(path)
        raise
    except ValueError as error:
        # OmegaConf takes what stands below a list for a number
        keys, known = [text.partition("=")[0] for text in overrides], primary.known_keys(overrides)
        if key := next((key for key in keys if key not in known and key.rpartition(".")[0] in known), None):
            hint = f"{key.rpartition('.')[0]} is one setting, such as [a,b]"
            raise Mistake(f"there is no setting {key!r}", hint) from error
        raise


def near_key(key: str, overrides: Iterable[str] = (), primary: Primary = PRETRAINING) -> str:
    """The places of an unknown key, the options that have it, the nearest known key, or the keys beside it."""
    known, of_options = primary.known_keys(overrides), [*primary.keys_of_options()]
    parent, _, leaf = key.rpartition(".")
    if having := [option for each, option in of_options if each == key]:
        return f"{key} is a setting of {', '.join(having)}"
    # what the choice of an option decides is not set by itself
    places_of = functools.partial(keys_that_end_in, leaf if leaf not in DECIDED else "")
    if places := places_of(known):
        return f"did you mean {' or '.join(places)}?"
    if places := places_of(each for each, _ in of_options):
        having = [option for each, option in of_options if each in places]
        return f"did you mean {' or '.join(places)}, a setting of {', '.join(having)}?"
    siblings = [each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == parent]
    if parent and (close := closest(leaf, siblings)):
        return f"did you mean {parent}.{close}?"
    if parent and siblings:
        return f"{parent} has: {', '.join(siblings)}"
    if parent in known:
        return f"{parent} is one setting"
    for other in PRIMARIES.values():
        theirs = {*other.known_keys(), *other.groups}
        if other != primary and key.split(".")[0] in theirs.difference(known):
            return f"it is a setting of `attn {other.command}`"
        if other != primary and (places := places_of(theirs)):
            return f"{' or '.join(places)} is a setting of `attn {other.command}`"
    leaves = {each.rpartition(".")[2] for each in known} - DECIDED
    if close := closest(leaf, sorted(leaves)):
        return f"did you mean {' or '.join(keys_that_end_in(close, known))}?"
    return f"`attn {primary.command} --cfg job` prints every setting"


def _mistake_and_hint(error: BaseException, overrides: Iterable[str], primary: Primary) -> tuple[str, str]:
    text = "\n".join(map(str, _causes(error)))
    if match := re.search(r"Could not override '([^']+)'", text):
        return f"there is no setting {match[1]!r}", near_key(match[1], overrides, primary)
    if match := re.search(r"Could not find '([^']+)/([^'/]+)'", text):
        group, option = match[1], match[2]
        if group.startswith("hydra/"):
            ours = OF_HYDRA.get(group, {})
            if extra := ours.get(option):
                return f"{group}={option} is not installed", install_line(extra)
            hint = f"there are: {', '.join(ours)}; " if ours else ""
            return f"there is no {group} {option!r}" + did_you_mean(option, ours), f"{hint}is its plugin installed?"
        known = options(group)
        return f"there is no {group} {option!r}" + did_you_mean(option, known), f"there are: {', '.join(known)}"
    if match := re.search(r"In '([^'/]+)/([^']+)': Could not load '([^'/]+)/([^']+)'", text):
        group, option, known = match[3], match[4], options(match[3])
        meant = f"there is no {group} {option!r}" + did_you_mean(option, known)
        return f"{shown(yaml_file(match[1], match[2]))}: defaults: {meant}", f"there are: {', '.join(known)}"
    if "Missing mandatory value" in text and (match := re.search(r"full_key: (\S+)", text)):
        return f"{match[1]} has no value", f"write {match[1]}=..."
    if match := re.search(r"Environment variable '([^']+)' not found", text):
        return f"the environment has no {match[1]}", "set it; without HOME set ATTN_CACHE or cache=FOLDER"
    if match := re.search(r"Interpolation key '([^']+)' not found", text):
        place = re.search(r"full_key: (\S+)", text)
        where = f"{place[1]} refers to it, but " if place else ""
        return f"{where}there is no setting {match[1]!r}", near_key(match[1], overrides, primary)
    merged = re.search(r"Error merging override (.+)", text)
    if merged and (place := re.search(r"Cannot merge .*\n.*full_key: .*\n.*object_type=(list|dict)", text)):
        return f"{merged[1]}: must be {'a list, such as [a,b]' if place[1] == 'list' else 'a mapping, {KEY:VALUE}'}", ""
    line = first_line(error)
    if match := re.match(r"Ambiguous value for argument '(.+)'", line):
        return f"{match[1]}: several values need a sweep", "add -m; to give a list write key=[a,b]"
    if match := re.match(r"Sweep parameters '(.+)' requires --multirun", line):
        return f"{match[1]}: several values need a sweep", "add -m"
    # a function of ours says itself what is wrong
    line = next((str(cause) for cause in _causes(error) if isinstance(cause, Mistake)), line)
    if isinstance(error, OverrideParseException):
        return f"{error.override!r} cannot be read", _readable(str(error.override), primary)
    place = re.search(r"full_key: (\S+)", text)
    return (f"{place[1]}: {line}" if place else line), ""


def with_quotes(word: str) -> str:
    """An override with the quotes without which Hydra does not read its text, as for umlauts; another word as it is."""
    key, _, value = word.partition("=")
    needs = not value.isascii() and _is_text(key, value) and not _is_number(value)
    return f"{key}='{value}'" if needs else word


def _is_text(key: str, value: str) -> bool:
    """Whether a value is meant as a text, which a list, a mapping or a sweep that is not complete is not."""
    is_key = re.fullmatch(r"[\w./]+", key, re.ASCII)
    return bool(is_key and value) and not re.search(r"""["'`$\\!\n\[\]{}(),]""", value)


def _is_number(value: str) -> bool:
    return re.fullmatch(r"[\W\d_eE]*", value) is not None


def _readable(override: str, primary: Primary) -> str:
    """How to write an override that Hydra's grammar does not accept: as the shell takes it, where that is known."""
    if "\r" in override:
        return r"remove the carriage return, \r; a script with Windows line ends has one in every line"
    key, _, value = override.partition("=")
    for letter in key + (value if _is_number(value) else ""):
        if not letter.isascii():
            name = unicodedata.name(letter, "a character without a name").lower()
            return f"{letter!r} is not ASCII (U+{ord(letter):04X}, {name}); type it anew"
    if (second := re.search(r"\s([\w.]+)=", value)) and second[1] in {*primary.known_keys(), *primary.groups}:
        return f"two settings are two words: {key}=... {second[1]}=..."
    if value.startswith("="):
        return f"write {key}={value.lstrip('=')}"
    # a bracket after the beginning, as in train[:50%], is none of a list
    if _is_text(key, re.sub(r"(?<=.)[\[\]]", "", value)):
        # the shell replaces ~ only at the beginning of a word
        return f"""write {key}="'{re.sub("^~/", "$HOME/", value)}'" """.rstrip()
    return "write key=value; quote parts that the shell or Hydra's grammar would split"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
