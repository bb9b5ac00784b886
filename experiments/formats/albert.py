"""ALBERT (Lan et al. 2020, 1909.11942), as Hugging Face's `AlbertForMaskedLM` and `AlbertForPreTraining` store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.names import Names
from experiments.formats.requirements import (
    THEIR_ACTIVATIONS,
    head_size,
    our_activation,
    require,
    require_config,
    text,
)
from experiments.record.dotted import value_at
from experiments.settings.run import Settings

FIXED = {
    "norm": "post",
    "model.norm_kind": "layer",
    "model.position": "learned",
    "model.embedding_norm": True,
    "model.gated": False,
    "model.linear_bias": True,
    "model.head_transform": True,
    "model.tied": True,
    "model.head_bias": True,
    "model.output_scaled": False,
}
# settings -> config.json, where they are the same number
SAME_NUMBERS = {
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "length": "max_position_embeddings",
    "model.embedding_size": "embedding_size",
    "model.intermediate_size": "intermediate_size",
    "model.norm_epsilon": "layer_norm_eps",
    "model.token_types": "type_vocab_size",
    "model.dropout": "hidden_dropout_prob",
    "model.attention_dropout": "attention_probs_dropout_prob",
    "model.initial_std": "initializer_range",
}
# a group of theirs is a layer that others may share
GROUP = "albert.encoder.albert_layer_groups.N.albert_layers.0"
NAMES = Names(
    {
        "albert.embeddings.word_embeddings": "embedding.token",
        "albert.embeddings.position_embeddings": "embedding.position",
        "albert.embeddings.token_type_embeddings": "embedding.token_type",
        "albert.embeddings.LayerNorm": "embedding.norm",
        "albert.encoder.embedding_hidden_mapping_in": "embedding.projection",
        f"{GROUP}.attention.query": "encoder.layers.N.attention.query",
        f"{GROUP}.attention.key": "encoder.layers.N.attention.key",
        f"{GROUP}.attention.value": "encoder.layers.N.attention.value",
        f"{GROUP}.attention.dense": "encoder.layers.N.attention.output",
        f"{GROUP}.attention.LayerNorm": "encoder.layers.N.attention_residual.norm",
        f"{GROUP}.ffn": "encoder.layers.N.feed_forward.inner",
        f"{GROUP}.ffn_output": "encoder.layers.N.feed_forward.outer",
        f"{GROUP}.full_layer_layer_norm": "encoder.layers.N.feed_forward_residual.norm",
        "predictions.dense": "head.transform.dense",
        "predictions.LayerNorm": "head.transform.norm",
        "predictions": "head",
        "albert.pooler": "order.dense",
        "sop_classifier.classifier": "order.output",
    },
    "an AlbertForMaskedLM",
)
# what transformers takes for a key that is not there
DEFAULTS: dict[str, Any] = {
    "num_hidden_groups": 1, "embedding_size": 128, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12,
    "type_vocab_size": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02,
    "max_position_embeddings": 512,
}  # fmt: skip


class AlbertFormat(Format):
    """ALBERT with its masked-token head, and with that for the order of sentences if there is one."""

    model_type: ClassVar[str] = "albert"
    unused: ClassVar[str] = r"albert\.embeddings\.position_ids"

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides that make our model theirs. Raises Mistake that names what we don't have."""
        config = DEFAULTS | dict(config)
        require_config(config, {"inner_group_num": 1, "tie_word_embeddings": True})
        groups, layers = config["num_hidden_groups"], config["num_hidden_layers"]
        if groups not in (1, layers):
            raise Mistake(f"num_hidden_groups = {groups} of an albert configuration: must be 1 or {layers}, the layers")
        if config["embedding_size"] == config["hidden_size"]:
            raise Mistake(
                f"embedding_size = {config['embedding_size']} of an albert configuration: must differ from "
                "hidden_size, because our model has no map between equal sizes"
            )
        values = {
            "objective": "masked_sop" if "AlbertForPreTraining" in (config.get("architectures") or []) else "masked",
            "variant": "multi_head",
            **FIXED,
            **{ours: config[theirs] for ours, theirs in SAME_NUMBERS.items()},
            "model.sharing": "all" if groups == 1 else "none",
            "model.activation": our_activation(config["hidden_act"]),
        }
        return [f"{key}={text(value)}" for key, value in values.items()]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """A `config.json` for our model. Raises Mistake that names what ALBERT doesn't have."""
        _check(settings)
        tree, model = settings.model_dump(), settings.model
        pretraining = settings.objective.kind == "masked_sop"
        return {
            "model_type": self.model_type,
            "architectures": ["AlbertForPreTraining" if pretraining else "AlbertForMaskedLM"],
            "vocab_size": vocabulary_size,
            **{theirs: value_at(tree, ours) for ours, theirs in SAME_NUMBERS.items()},
            "num_hidden_groups": 1 if model.sharing == "all" else model.layers,
            "inner_group_num": 1,
            "hidden_act": THEIR_ACTIVATIONS[model.activation],
            "tie_word_embeddings": True,
        }

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names. Raises Mistake for a name that such a model does not have.

        A pooler without the classifier that it is for is left out: nothing of ours is made of it.
        """
        left_out = ["predictions.decoder."]
        if "sop_classifier.classifier.weight" not in state:
            left_out.append("albert.pooler.")
        ours = NAMES.to_ours({name: state[name] for name in state if not name.startswith(tuple(left_out))})
        output = state.get("predictions.decoder.weight")
        if output is not None and not torch.equal(output, ours["embedding.token.weight"]):
            raise Mistake("predictions.decoder.weight differs from the input embedding; ALBERT ties the two")
        return ours

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names. Raises Mistake that names what ALBERT doesn't have."""
        _check(settings)
        theirs = NAMES.to_theirs(state)
        theirs["predictions.decoder.weight"] = theirs["albert.embeddings.word_embeddings.weight"]
        theirs["predictions.decoder.bias"] = theirs["predictions.bias"]
        return theirs


def _check(settings: Settings) -> None:
    sizes = dict.fromkeys(("key_size", "value_size"), head_size(settings))
    require("ALBERT", settings, {"variant.name": "multi_head", "variant.scaled": True} | FIXED | sizes)
    model = settings.model
    allowed = {
        "objective.kind": (settings.objective.kind, ("masked", "masked_sop")),
        "model.sharing": (model.sharing, ("none", "all")),
    }
    for key, (value, choices) in allowed.items():
        if value not in choices:
            raise Mistake(f"{key} = {value!r}: an albert model has one of {', '.join(choices)}")
    if model.embedding_size == model.hidden_size:
        raise Mistake(
            f"model.embedding_size = {model.embedding_size}: in an albert model it must differ from hidden_size"
        )
    if not model.token_types:
        raise Mistake("model.token_types = 0: must be at least 1 in an albert model")
