"""Composed YAML as checked settings: Hydra composes, pydantic checks, torch stays out.

    overrides -> hydra -> DictConfig -> resolve() -> Settings

Whatever is wrong ends as a `Mistake` that names the key, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from experiments.config.check import check_written, from_tree
from experiments.config.command_line import check_overrides
from experiments.config.files_in_messages import files_in_messages
from experiments.config.groups import conf_for_hydra
from experiments.config.hydra_messages import hydra_errors_as_mistakes
from experiments.config.pretrained import inherit
from experiments.config.primary import PRETRAINING, Primary
from experiments.config.resolvers import register
from experiments.failures.failure import Mistake
from experiments.settings.run import Settings

register()


def compose(overrides: list[str]) -> Settings:
    """The checked settings of one run, from overrides as on the command line. Raises Mistake."""
    for override in check_overrides(overrides):
        if override.is_hydra_override():
            raise Mistake(f"{override.input_line}: only `attn train` reads Hydra's own settings")
    with files_in_messages(overrides, PRETRAINING):
        return resolve(compose_raw(overrides))


def compose_raw(overrides: list[str], primary: Primary = PRETRAINING, *, with_hydra: bool = False) -> DictConfig:
    """The composed configuration, before interpolation and checks. Raises Mistake."""
    folder = conf_for_hydra()
    with hydra_errors_as_mistakes(overrides, primary), hydra.initialize_config_dir(folder, version_base="1.3"):
        return hydra.compose(primary.name, overrides, return_hydra_config=with_hydra)


def resolve(config: DictConfig) -> Settings:
    """Interpolate and check every value. Raises Mistake."""
    return from_tree(*interpolated(config))


def interpolated(config: DictConfig, unchecked: Container[str] = ()) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Plain values, and their sources before interpolation. Raises Mistake for values that prevent it.

    unchecked: keys to which no expression refers, so their values may be wrong here.
    """
    sources = OmegaConf.to_container(config, resolve=False)
    assert isinstance(sources, dict)
    if "pretrained" in sources and "origin" not in sources:
        sources = inherit({str(key): value for key, value in sources.items()})
        config = OmegaConf.create(sources)
    check_written({str(key): value for key, value in sources.items()}, unchecked)
    with hydra_errors_as_mistakes():
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}, sources
