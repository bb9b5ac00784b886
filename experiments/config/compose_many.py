"""Composes many runs.

Hydra reads and composes all files for each run, which takes a third of a second. Here they are composed once for each
choice of options of groups. A value to which no expression refers, other than as `${key}`, is then inserted
without interpolating again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config.check import from_tree
from experiments.config.command_line import check_overrides
from experiments.config.compose import compose_raw, interpolated
from experiments.config.files_in_messages import files_in_messages
from experiments.config.pretrained import READ_TO_INHERIT
from experiments.config.primary import FINETUNING, PRETRAINING, Primary
from experiments.failures.failure import Mistake
from experiments.settings.run import Settings

REMEMBERED = 256  # interpolated configurations of a choice

# where a value stands: the keys that lead to it
KeyPath = tuple[str, ...]


class Value(NamedTuple):
    """The value of an override."""

    key: str
    value: Any
    text: str  # KEY=VALUE


class Composer:
    """Composes runs that share choices of options of groups."""

    def __init__(self, primary: Primary = PRETRAINING) -> None:
        self._primary = primary
        self._by_choice: dict[tuple[str, ...], _Composition] = {}
        self._mistakes: dict[tuple[tuple[str, ...], tuple[str, ...]], Mistake] = {}  # by choice and `_deciding`

    def compose(self, overrides: list[str]) -> Settings:
        """The checked settings of one run, from overrides as on the command line. Raises Mistake."""
        choice: list[str] = []
        values: list[Value] = []
        for override, text in zip(check_overrides(overrides, self._primary), overrides, strict=True):
            key = override.get_key_element()
            if key in self._primary.groups or override.is_hydra_override() or override.is_sweep_override():
                choice.append(text)
            else:
                values.append(Value(key, override.value(), text))
        return self.settings(choice, values)

    def settings(self, choice: Sequence[str], values: Sequence[Value]) -> Settings:
        """The checked settings of one run. Raises Mistake.

        choice: overrides that many runs share, among them those of groups.
        """
        shared, deciding = tuple(choice), tuple(map(_deciding, values))
        if mistake := self._mistakes.get((shared, ())) or self._mistakes.get((shared, deciding)):
            raise mistake
        if shared not in self._by_choice:
            with self._remembered(shared, ()):
                self._by_choice[shared] = _Composition(shared, self._primary)
        overrides = [*shared, *(value.text for value in values)]
        try:
            with files_in_messages(overrides, self._primary):
                return self._by_choice[shared].settings(values)
        except OmegaConfBaseException:
            # Hydra's own error says what is wrong
            with self._remembered(shared, deciding):
                compose_raw(overrides, self._primary)
            raise

    @contextmanager
    def _remembered(self, shared: tuple[str, ...], deciding: tuple[str, ...]) -> Iterator[None]:
        """A block whose mistake, which takes long to find, is that of every run that agrees in these."""
        try:
            yield
        except Mistake as mistake:
            self._mistakes[shared, deciding] = mistake
            raise


class _Composition:
    """The files of one choice, into which values are put."""

    def __init__(self, choice: Sequence[str], primary: Primary) -> None:
        """Raises Mistake."""
        self._config = compose_raw([*choice], primary)
        sources = OmegaConf.to_container(self._config, resolve=False)
        assert isinstance(sources, dict)
        self._leaves = dict(_leaves(sources))
        self._read = READ_TO_INHERIT if primary == FINETUNING else frozenset()
        self._key_paths: dict[str, list[KeyPath]] = {}
        self._interpolated: dict[str, tuple[dict[str, Any], dict[Any, Any]]] = {}

    def settings(self, values: Sequence[Value]) -> Settings:
        """The checked settings with these values. Raises Mistake, and OmegaConfBaseException for an unknown key."""
        inserted = self._inserted(values)
        others = {value.key: value.value for value in values if value.key not in inserted}
        combination = repr((others, [*inserted]))
        if combination not in self._interpolated:
            if len(self._interpolated) == REMEMBERED:
                self._interpolated.clear()
            # what is inserted may be missing in the files
            config = _with_values(self._config, (others | inserted).items())
            self._interpolated[combination] = interpolated(config, unchecked=inserted)
        tree, sources = self._interpolated[combination]
        for key, value in inserted.items():
            for key_path in self._key_paths[key]:
                tree = _replaced(tree, key_path, value)
        return from_tree(tree, sources)

    def _inserted(self, values: Sequence[Value]) -> dict[str, Any]:
        """Those values, by their keys, for which nothing needs to be interpolated."""
        if any("${" in str(value.value) for value in values):
            # an expression may refer to any of the others
            return {}
        given = {tuple(value.key.split(".")) for value in values}
        return {
            value.key: value.value
            for value in values
            if isinstance(value.value, int | float | str)
            and (key_paths := self._key_paths_of(value.key))
            # what follows from the value may be overridden too
            and given.isdisjoint(key_paths[1:])
        }

    def _key_paths_of(self, key: str) -> list[KeyPath]:
        if key not in self._key_paths:
            is_read = key.split(".")[0] in self._read
            self._key_paths[key] = [] if is_read else _key_paths(key, self._leaves)
        return self._key_paths[key]


def _deciding(value: Value) -> str:
    """What decides whether Hydra accepts an override: its key, and a value that is a list or a mapping."""
    return value.text if isinstance(value.value, list | dict) else value.key


def _with_values(config: DictConfig, values: Iterable[tuple[str, Any]]) -> DictConfig:
    """A copy of a composed configuration, with other values of some keys. Raises OmegaConfBaseException."""
    config = copy.deepcopy(config)
    for key, value in values:
        OmegaConf.update(config, key, value)
    return config


def _leaves(node: Mapping[Any, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in node.items():
        key_path = (*above, str(key))
        if isinstance(value, dict):
            yield from _leaves(value, key_path)
        else:
            yield key_path, value


def _key_paths(key: str, leaves: Mapping[KeyPath, Any]) -> list[KeyPath]:
    """The key paths of a key's value: the key itself and every key whose source is `${key}`, and so on.

    Empty if anything is, or might be, computed from it.
    """
    key_paths = [tuple(key.split("."))]
    if key_paths[0] not in leaves:
        return []
    for key_path in key_paths:
        path = ".".join(key_path)
        mentioned = re.compile(rf"\b{re.escape(key_path[-1])}\b")
        for other, source in leaves.items():
            if source == f"${{{path}}}":
                key_paths.append(other)
            elif isinstance(source, str | list) and "${" in str(source) and mentioned.search(str(source)):
                return []
    return key_paths


def _replaced(tree: dict[str, Any], key_path: KeyPath, value: object) -> dict[str, Any]:
    """The tree with another value at a key path; the original tree is unchanged."""
    first, *rest = key_path
    return tree | {first: _replaced(tree[first], tuple(rest), value) if rest else value}
