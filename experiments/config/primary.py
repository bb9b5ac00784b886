"""The primary configs of `conf/`: the file that Hydra composes for a command, with its groups and keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import hydra
from omegaconf import OmegaConf

from experiments.config.groups import conf_for_hydra, groups, options
from experiments.settings.conf_files import CONF, is_global, read_conf, yaml_file


class Primary(NamedTuple):
    """A primary config."""

    name: str  # of its file
    command: str  # that composes it

    @property
    def groups(self) -> frozenset[str]:
        """The groups in its defaults list."""
        return _groups_in_defaults(self.name)

    def known_keys(self, overrides: Iterable[str] = ()) -> list[str]:
        """Every dotted key of the configuration with the chosen groups; a group is also a key."""
        choices = [f"{group}={option}" for group, option in _choices(overrides) if group in self.groups]
        with hydra.initialize_config_dir(conf_for_hydra(), version_base="1.3"):
            tree = OmegaConf.to_container(hydra.compose(self.name, choices), resolve=False)
        assert isinstance(tree, dict)
        return list(_dotted_keys(tree))

    def keys_of_options(self) -> Iterator[tuple[str, str]]:
        """Yield (dotted key, group=option) for each key in the file of each option. Raises Mistake."""
        for group in sorted(self.groups):
            for option in options(group):
                file = yaml_file(group, option)
                tree, above = read_conf(file), "" if is_global(file) else f"{group}."
                for key in _dotted_keys(tree if isinstance(tree, dict) else {}, above):
                    yield key, f"{group}={option}"

    def is_of_a_group(self, key: str) -> bool:
        """Whether a dotted key is a group, or is set by the file of an option of one."""
        return key in self.groups or any(key == each for each, _ in self.keys_of_options())


PRETRAINING = Primary("config", "train")
FINETUNING = Primary("finetune", "finetune")
PRIMARIES = {primary.name: primary for primary in (PRETRAINING, FINETUNING)}


def primary_of(tree: dict[Any, Any]) -> Primary:
    """The primary config of a configuration: fine-tuning names a pretrained run."""
    return FINETUNING if "pretrained" in tree else PRETRAINING


@cache
def _groups_in_defaults(name: str) -> frozenset[str]:
    # the items of a defaults list are `_self_` or {"variant": "multi_head"}, with a word such as `optional` before it
    entries = OmegaConf.load(CONF / f"{name}.yaml").defaults
    return frozenset(str(key).split()[-1] for entry in entries if not isinstance(entry, str) for key in entry)


def _dotted_keys(tree: dict[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _dotted_keys(value, f"{prefix}{key}.")


def _choices(overrides: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (group, option) for each override that chooses an option of a group."""
    for override in overrides:
        group, _, option = override.partition("=")
        if group in groups() and option in options(group):
            yield group, option
