"""Composed YAML as checked settings: Hydra composes, pydantic checks, torch stays out.

    overrides -> hydra -> DictConfig -> resolve() -> Settings

Whatever is wrong ends as a `Mistake` that names the key, the value and what is allowed.
"""

from __future__ import annotations

import platform
from collections.abc import Container
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from experiments.config.check import class_of, errors_of, from_tree
from experiments.config.choices import choices
from experiments.config.command_line import check_overrides
from experiments.config.messages import CONF, groups_of, hydra_errors_as_mistakes, options
from experiments.config.pretrained import inherit
from experiments.settings.mistake import Mistake
from experiments.settings.run import Settings


def _floor_divide(number: Any, by: Any) -> int | None:
    # a size that is no number is reported under its own key, not under the keys that follow from it
    return number // by if isinstance(number, int) and isinstance(by, int) and by > 0 else None


def _times(factor: int, number: Any) -> int | None:
    return factor * number if isinstance(number, int) else None


def _minus(number: Any, other: Any) -> int | None:
    return number - other if isinstance(number, int) and isinstance(other, int) else None


def _groups(name: str) -> str:
    return "\n".join(f"{group}: {', '.join(options(group))}" for group in sorted(groups_of(name)))


OmegaConf.register_new_resolver("floor_divide", _floor_divide, replace=True)
OmegaConf.register_new_resolver("times", _times, replace=True)
OmegaConf.register_new_resolver("minus", _minus, replace=True)
OmegaConf.register_new_resolver("choices", choices, replace=True)
OmegaConf.register_new_resolver("groups", _groups, replace=True)
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
