"""A small BERT around any variant, and one whose heads are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from experiments.data.packing import Dataset, Packed
from experiments.heads.trained_run import TrainedRun
from experiments.model.architectures import encoder
from experiments.model.build import build
from experiments.objectives.objective import Batch
from experiments.settings.model import Model

CONF = Path(__file__).parents[2] / "conf"
VOCABULARY, LENGTH, CLS = 23, 8, 0


def small_model(**changes: Any) -> Model:
    base = {
        "hidden_size": 12, "intermediate_size": 20, "embedding_size": changes.get("hidden_size", 12), "layers": 2,
        "sharing": "none", "length": LENGTH, "norm": "pre", "norm_kind": "layer",
        "norm_epsilon": 1e-12, "embedding_norm": True, "head_bias": True,
        "position": "rotary", "rotary_base": 10000.0, "sinusoidal_base": 10000.0,
        "position_start": "normal", "relative_buckets": 8,
        "relative_distance": 16, "local_window": None, "global_every": 3, "local_rotary_base": 10000.0,
        "segment_length": None, "first_norm": True, "activation": "gelu", "gated": False, "linear_bias": True,
        "output_scaled": False, "branches_scaled": False, "token_types": 0, "head_transform": False,
        "tied": True, "dropout": 0.0, "attention_dropout": 0.0, "initial_std": 0.3,
    }  # fmt: skip
    return Model(**(base | changes))


def group(name: str) -> Any:
    own = OmegaConf.load(CONF / "variant" / f"{name}.yaml")
    return OmegaConf.merge(*map(group, own.pop("defaults", [])), own)


@pytest.fixture(scope="session")
def bert_of() -> Callable[..., encoder.Architecture]:
    """bert_of("talking_heads", seed=0, heads=3, key_size=4, **changes of the model): in float64."""

    def make(variant: str, seed: int = 0, heads: int = 3, key_size: int = 4, **changes: Any) -> encoder.Architecture:
        model = small_model(**changes)
        sizes = {"hidden_size": model.hidden_size, "heads": heads, "key_size": key_size, "value_size": 4}
        tree = OmegaConf.create({**sizes, "backend": "auto", "model": model.model_dump(), "variant": group(variant)})
        resolved = OmegaConf.to_container(tree, resolve=True)["variant"]
        return build("encoder", model, resolved, VOCABULARY, seed).double().eval()

    return make


@pytest.fixture(scope="session")
def batch() -> Batch:
    """Five sequences of eight tokens, three with two positions to predict, one with one, one with none."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, VOCABULARY, (5, LENGTH), generator=generator)
    positions = torch.tensor([1, 4, 10, 15, 19, 20, 33])
    return Batch({"tokens": tokens}, positions, torch.randint(1, VOCABULARY, (7,), generator=generator), LENGTH)


@pytest.fixture(scope="session")
def known(bert_of: Callable[..., encoder.Architecture]) -> encoder.Architecture:
    """One layer, four heads: to the previous token; uniform; and two that are identical."""
    bert = bert_of("multi_head", heads=4, key_size=LENGTH, hidden_size=LENGTH, layers=1, position="learned")
    attention = bert.layers[0].attention
    with torch.no_grad():
        bert.embedding.token.weight.zero_()
        bert.embedding.position.weight.copy_(torch.eye(LENGTH))
        query = attention.query.weight.view(4, LENGTH, LENGTH)
        key = attention.key.weight.view(4, LENGTH, LENGTH)
        query[0] = 100 * torch.eye(LENGTH)
        # the key of position m is what the query of position m + 1 looks for
        key[0] = torch.eye(LENGTH).roll(1, dims=0)
        query[1] = 0
        query[3], key[3] = query[2], key[2]
    return bert


@pytest.fixture(scope="session")
def trained_run_of() -> Callable[..., TrainedRun]:
    """The model as a run, on sequences of [CLS] and seven tokens; the higher the token, the rarer."""

    def make(model: encoder.Architecture, position: str = "rotary") -> TrainedRun:
        tokens = np.random.default_rng(0).integers(1, VOCABULARY, (6, LENGTH)).astype(np.uint16)
        tokens[:, 0] = CLS
        packed = Packed("validation", tokens, tokens.size, tokens.size, 1)
        tokenizer: Any = SimpleNamespace(special=frozenset({CLS}))
        unigram = np.arange(VOCABULARY, 0, -1)
        config: Any = SimpleNamespace(
            length=LENGTH, data=SimpleNamespace(holds_pairs=False), model=SimpleNamespace(position=position)
        )
        objective: Any = SimpleNamespace(architecture="encoder")
        dataset = Dataset(packed, packed, None, tokenizer, unigram, {}, {})
        return TrainedRun("known", config, model, objective, dataset, len(tokens))

    return make
