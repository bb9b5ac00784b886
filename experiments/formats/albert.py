"""ALBERT (Lan et al. 2020, 1909.11942), as Hugging Face's `AlbertForMaskedLM` and `AlbertForPreTraining` store it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.requirements import THEIR_ACTIVATIONS, head_size, our_activation, require, require_config
from experiments.settings.run import Settings

FIXED = {
    "variant.name": "multi_head",
    "variant.scaled": True,
    "norm": "post",
    "model.norm_kind": "layer",
    "model.position": "learned",
    "model.embedding_norm": True,
    "model.gated": False,
    "model.linear_bias": True,
    "model.head_transform": True,
    "model.tied": True,
    "model.head_bias": True,
}
# ours by theirs, in front of .weight and .bias; a group of theirs is a layer that others may share
MODULES = {
    "albert.embeddings.word_embeddings": "embedding.token",
    "albert.embeddings.position_embeddings": "embedding.position",
    "albert.embeddings.token_type_embeddings": "embedding.token_type",
    "albert.embeddings.LayerNorm": "embedding.norm",
    "albert.encoder.embedding_hidden_mapping_in": "embedding.projection",
    "predictions.dense": "head.transform.dense",
    "predictions.LayerNorm": "head.transform.norm",
    "predictions": "head",
    "albert.pooler": "order.dense",
    "sop_classifier.classifier": "order.output",
}
GROUP = r"albert\.encoder\.albert_layer_groups\.(\d+)\.albert_layers\.0\.(.+)"
GROUP_MODULES = {
    "attention.query": "attention.query",
    "attention.key": "attention.key",
    "attention.value": "attention.value",
    "attention.dense": "attention.output",
    "attention.LayerNorm": "attention_residual.norm",
    "ffn": "feed_forward.inner",
    "ffn_output": "feed_forward.outer",
    "full_layer_layer_norm": "feed_forward_residual.norm",
}


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
        pretraining = "AlbertForPreTraining" in (config.get("architectures") or [])
        activation = our_activation(config["hidden_act"])
        return [
            f"objective={'masked_sop' if pretraining else 'masked'}",
            "variant=multi_head",
            f"hidden_size={config['hidden_size']}",
            f"layers={layers}",
            f"heads={config['num_attention_heads']}",
            f"length={config['max_position_embeddings']}",
            "norm=post",
            "model.norm_kind=layer",
            f"model.norm_epsilon={config['layer_norm_eps']}",
            "model.embedding_norm=true",
            "model.position=learned",
            f"model.embedding_size={config['embedding_size']}",
            f"model.intermediate_size={config['intermediate_size']}",
            f"model.sharing={'all' if groups == 1 else 'none'}",
            f"model.activation={activation}",
            "model.gated=false",
            "model.linear_bias=true",
            f"model.token_types={config['type_vocab_size']}",
            "model.head_transform=true",
            "model.tied=true",
            "model.head_bias=true",
            f"model.dropout={config['hidden_dropout_prob']}",
            f"model.attention_dropout={config['attention_probs_dropout_prob']}",
            f"model.initial_std={config['initializer_range']}",
        ]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """A `config.json` for our model. Raises Mistake that names what ALBERT doesn't have."""
        _check(settings)
        model = settings.model
        pretraining = settings.objective.kind == "masked_sop"
        return {
            "model_type": self.model_type,
            "architectures": ["AlbertForPreTraining" if pretraining else "AlbertForMaskedLM"],
            "vocab_size": vocabulary_size,
            "embedding_size": model.embedding_size,
            "hidden_size": model.hidden_size,
            "num_hidden_layers": model.layers,
            "num_hidden_groups": _groups(settings),
            "inner_group_num": 1,
            "num_attention_heads": settings.heads,
            "intermediate_size": model.intermediate_size,
            "hidden_act": THEIR_ACTIVATIONS[model.activation],
            "hidden_dropout_prob": model.dropout,
            "attention_probs_dropout_prob": model.attention_dropout,
            "max_position_embeddings": model.length,
            "type_vocab_size": model.token_types,
            "initializer_range": model.initial_std,
            "layer_norm_eps": model.norm_epsilon,
            "tie_word_embeddings": True,
        }

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names. Raises Mistake for a name that such a model does not have.

        A pooler without the classifier that it is for is left out: nothing of ours is made of it.
        """
        ours: dict[str, Tensor] = {}
        for name, tensor in state.items():
            module, _, parameter = name.rpartition(".")
            if module == "predictions.decoder" or (
                module == "albert.pooler" and "sop_classifier.classifier.weight" not in state
            ):
                continue
            if module in MODULES:
                ours[f"{MODULES[module]}.{parameter}"] = tensor
            elif (match := re.fullmatch(GROUP, module)) and match[2] in GROUP_MODULES:
                ours[f"encoder.layers.{match[1]}.{GROUP_MODULES[match[2]]}.{parameter}"] = tensor
            else:
                raise Mistake(f"{name} is not a weight of an AlbertForMaskedLM")
        output = state.get("predictions.decoder.weight")
        if output is not None and not torch.equal(output, ours["embedding.token.weight"]):
            raise Mistake("predictions.decoder.weight differs from the input embedding; ALBERT ties the two")
        return ours

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names. Raises Mistake that names what ALBERT doesn't have."""
        _check(settings)
        named = {ours: name for name, ours in MODULES.items()}
        inner = {ours: name for name, ours in GROUP_MODULES.items()}
        theirs: dict[str, Tensor] = {}
        for name, tensor in state.items():
            module, _, parameter = name.rpartition(".")
            if match := re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)", module):
                group = f"albert.encoder.albert_layer_groups.{match[1]}.albert_layers.0"
                theirs[f"{group}.{inner[match[2]]}.{parameter}"] = tensor
            else:
                theirs[f"{named[module]}.{parameter}"] = tensor
        theirs["predictions.decoder.weight"] = theirs["albert.embeddings.word_embeddings.weight"]
        theirs["predictions.decoder.bias"] = theirs["predictions.bias"]
        return theirs


def _groups(settings: Settings) -> int:
    return 1 if settings.model.sharing == "all" else settings.model.layers


def _check(settings: Settings) -> None:
    require("ALBERT", settings, FIXED | dict.fromkeys(("key_size", "value_size"), head_size(settings)))
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
