from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from experiments.model.architectures import encoder
from experiments.model.build import build
from experiments.settings.model import Model

CONF = Path(__file__).parents[2] / "conf"
VOCABULARY = 23


def small_model(**changes: Any) -> Model:
    base = Model(
        hidden_size=12,
        intermediate_size=20,
        embedding_size=12,
        layers=2,
        sharing="none",
        length=16,
        norm="pre",
        norm_kind="layer",
        norm_epsilon=1e-12,
        embedding_norm=True,
        first_norm=True,
        position="rotary",
        rotary_base=10000.0,
        local_window=None,
        segment_length=None,
        global_every=3,
        local_rotary_base=10000.0,
        sinusoidal_base=10000.0,
        position_start="normal",
        relative_buckets=8,
        relative_distance=16,
        activation="gelu",
        gated=False,
        linear_bias=True,
        token_types=0,
        head_transform=False,
        tied=True,
        head_bias=True,
        output_scaled=False,
        dropout=0.0,
        attention_dropout=0.0,
        branches_scaled=False,
        initial_std=0.3,
    )
    if "hidden_size" in changes:
        changes = {"embedding_size": changes["hidden_size"]} | changes
    return Model(**(base.model_dump() | changes))


@functools.cache
def variant_group(name: str) -> Any:
    own = OmegaConf.load(CONF / "variant" / f"{name}.yaml")
    return OmegaConf.merge(*map(variant_group, own.pop("defaults", [])), own)


def resolved_variant(model: Model, name: str, heads: int, key_size: int, value_size: int) -> dict[str, Any]:
    """conf/variant/NAME.yaml, resolved for the model."""
    return copy.deepcopy(resolved_once(model.model_dump_json(), name, heads, key_size, value_size))


@functools.cache
def resolved_once(model: str, name: str, heads: int, key_size: int, value_size: int) -> dict[str, Any]:
    tree = json.loads(model)
    scalars = {"hidden_size": tree["hidden_size"], "heads": heads, "key_size": key_size, "value_size": value_size}
    whole = OmegaConf.create({**scalars, "backend": "reference", "model": tree})
    whole["variant"] = copy.deepcopy(variant_group(name))
    return OmegaConf.to_container(whole, resolve=True)["variant"]


@pytest.fixture
def settings_of() -> Callable[..., Model]:
    return small_model


@pytest.fixture
def variant_of() -> Callable[..., dict[str, Any]]:
    return resolved_variant


@pytest.fixture
def bert_of() -> Callable[..., encoder.Architecture]:
    """bert_of(variant="multi_head", seed=0, heads=3, key_size=4, value_size=4, **changes of the model): in float64."""

    def make(variant="multi_head", seed=0, heads=3, key_size=4, value_size=4, architecture="encoder", **changes):
        model = small_model(**changes)
        bert = build(
            architecture, model, resolved_variant(model, variant, heads, key_size, value_size), VOCABULARY, seed
        )
        return bert.double().eval()

    return make


@pytest.fixture
def tokens() -> torch.Tensor:
    """[3, 7]"""
    return torch.randint(VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(5))
