"""Composed YAML as checked settings: Hydra composes, pydantic checks, torch stays out.

    overrides -> hydra -> DictConfig -> resolve() -> Settings

Whatever is wrong ends as a `Mistake` that names the key, the value and what is allowed.
"""

from __future__ import annotations

import platform
from collections.abc import Container, Iterator
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from experiments.config.check import class_of, errors_of, from_tree
from experiments.config.command_line import check_overrides
from experiments.config.messages import CONF, groups, hydra_errors_as_mistakes, near_key, options
from experiments.config.pretrained import inherit
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings


def _floor_divide(number: Any, by: Any) -> int | None:
    # a size that is no number is reported under its own key, not under the keys that follow from it
    return number // by if isinstance(number, int) and isinstance(by, int) and by > 0 else None


def _times(factor: int, number: Any) -> int | None:
    return factor * number if isinstance(number, int) else None


OmegaConf.register_new_resolver("floor_divide", _floor_divide, replace=True)
OmegaConf.register_new_resolver("times", _times, replace=True)
OmegaConf.register_new_resolver("options", lambda group: ", ".join(options(group)), replace=True)
OmegaConf.register_new_resolver("interpreter", platform.python_version, replace=True)


def compose(overrides: list[str]) -> Settings:
    """The checked settings of one run, from overrides as on the command line. Raises Mistake."""
    check_overrides(overrides)
    return resolve(compose_raw(overrides))


def compose_raw(overrides: list[str], *, with_hydra: bool = False, name: str = "config") -> DictConfig:
    """The composed configuration, before interpolation and checks. Raises Mistake."""
    with hydra_errors_as_mistakes(overrides, name), hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose(name, overrides, return_hydra_config=with_hydra)


def resolve(config: DictConfig) -> Settings:
    """Interpolate and check every value. Raises Mistake."""
    return from_tree(*interpolated(config))


def interpolated(config: DictConfig, unchecked: Container[str] = ()) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Plain values, and their sources before interpolation. Raises Mistake for what hinders it.

    unchecked: top-level keys that nothing is computed from, so that a wrong value of theirs hinders nothing.
    """
    sources = OmegaConf.to_container(config, resolve=False)
    assert isinstance(sources, dict)
    sources.pop("hydra", None)
    if "pretrained" in sources and "origin" not in sources:
        sources = inherit({str(key): value for key, value in sources.items()})
        config = OmegaConf.create(sources)
    # the typed values first: what follows from a wrong one by interpolation would hide it
    typed = {
        str(key): value
        for key, value in sources.items()
        if not isinstance(value, dict) and "${" not in str(value) and key not in unchecked
    }
    sentences = errors_of(typed, {}, class_of(sources))
    if wrong := [sentence for sentence in sentences if not sentence.endswith(" is missing")]:
        raise Mistake("\n".join(wrong))
    with hydra_errors_as_mistakes():
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items() if key != "hydra"}, sources


def override(tree: dict[str, Any], overrides: list[str]) -> Settings:
    """The settings of a run's `config.yaml` with other values. Raises Mistake.

    A group is composed afresh; a key that people vary also reaches the places that refer to it.
    """
    parsed = check_overrides(overrides, "finetune" if "pretrained" in tree else "config")
    for text, each in zip(overrides, parsed, strict=True):
        if each.is_sweep_override():
            raise Mistake(f"{text}: one value is needed here", "to give a list write key=[a,b]")
    composed_groups = {each.key_or_group for each in parsed} & set(groups())
    pairs = zip(overrides, parsed, strict=True)
    group_overrides = [text for text, each in pairs if each.key_or_group.split(".")[0] in composed_groups]
    fresh = OmegaConf.to_container(compose_raw(group_overrides), resolve=True)
    assert isinstance(fresh, dict)
    config = OmegaConf.create(tree | {group: fresh[group] for group in composed_groups})
    sources = OmegaConf.to_container(compose_raw([f"variant={tree['variant']['name']}"]), resolve=False)
    assert isinstance(sources, dict)
    for each in parsed:
        key: str = each.key_or_group
        value: Any = each.value()
        if key.split(".")[0] in composed_groups:
            continue
        if OmegaConf.select(config, key, default=config) is config:
            raise Mistake(f"there is no setting {key!r}", near_key(key))
        for place in [key, *_places_of(key, sources, tree)]:
            OmegaConf.update(config, place, value)
    return resolve(config)


def _places_of(key: str, sources: dict[Any, Any], tree: dict[str, Any]) -> Iterator[str]:
    """Dotted keys of `tree` whose source, its YAML before interpolation, is nothing but `${key}`."""
    for group, keys in sources.items():
        if isinstance(keys, dict) and isinstance(tree.get(str(group)), dict):
            referring = (name for name, source in keys.items() if source == f"${{{key}}}" and name in tree[str(group)])
            yield from (f"{group!s}.{name!s}" for name in referring)
