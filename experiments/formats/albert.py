"""ALBERT (Lan et al. 2020, 1909.11942), as Hugging Face's `AlbertForMaskedLM` and `AlbertForPreTraining` store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.bert import BertFormat
from experiments.formats.format import Format
from experiments.formats.keys import READ_ACTIVATIONS, THEIR_ACTIVATIONS, read, read_choice
from experiments.settings.run import Settings

WITH_ORDER = ["AlbertForPreTraining"]  # the architectures with a head for the order of sentences
# a group of theirs is a layer that others may share
GROUP = "albert.encoder.albert_layer_groups.N.albert_layers.0"


class AlbertFormat(Format):
    """ALBERT with its masked-token head, and with that for the order of sentences if there is one."""

    model_type: ClassVar[str] = "albert"
    proper_name: ClassVar[str] = "ALBERT"
    architecture: ClassVar[str] = "AlbertForMaskedLM"
    unused: ClassVar[str] = r"albert\.embeddings\.position_ids"
    fixed_settings: ClassVar[Mapping[str, Any]] = {**BertFormat.fixed_settings, "model.tied": True}
    fixed_keys: ClassVar[Mapping[str, Any]] = {"inner_group_num": 1, "tie_word_embeddings": True}
    same_values: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "hidden_size": ("hidden_size", int),
        "layers": ("num_hidden_layers", int),
        "heads": ("num_attention_heads", int),
        "length": ("max_position_embeddings", 512),
        "model.embedding_size": ("embedding_size", 128),
        "model.intermediate_size": ("intermediate_size", int),
        "model.norm_epsilon": ("layer_norm_eps", 1e-12),
        "model.token_types": ("type_vocab_size", 2),
        "model.dropout": ("hidden_dropout_prob", 0.0),
        "model.attention_dropout": ("attention_probs_dropout_prob", 0.0),
        "model.initial_std": ("initializer_range", 0.02),
    }
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
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
        "predictions.decoder": "head.output",
        "predictions": "head",
        "albert.pooler": "order.dense",
        "sop_classifier.classifier": "order.output",
    }

    def settings_of(self, config: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
        """The objective, the activation, and whether layers share their weights."""
        groups, layers = read(config, "num_hidden_groups", 1), same["layers"]
        if groups not in (1, layers):
            raise Mistake(f"num_hidden_groups = {groups} of config.json: must be 1 or {layers}, the layers")
        if (size := same["model.embedding_size"]) == same["hidden_size"]:
            reason = "our model has no map between equal sizes"
            raise Mistake(f"embedding_size = {size} of config.json: must differ from hidden_size, because {reason}")
        return {
            "objective.kind": "masked_sop" if config.get("architectures") == WITH_ORDER else "masked",
            "model.sharing": "all" if groups == 1 else "none",
            "model.activation": read_choice(config, "hidden_act", "gelu_new", READ_ACTIVATIONS),
        }

    def keys_of(self, settings: Settings) -> dict[str, Any]:
        """The objective, the activation, and the number of groups of layers that share their weights."""
        return {
            **({"architectures": WITH_ORDER} if settings.objective.kind == "masked_sop" else {}),
            "num_hidden_groups": 1 if settings.model.sharing == "all" else settings.layers,
            "hidden_act": THEIR_ACTIVATIONS[settings.model.activation],
        }

    def needs(self, settings: Settings) -> dict[str, Any]:
        """Either objective, all layers shared or none, and token types."""
        return super().needs(settings) | {
            "objective.kind": ("masked", "masked_sop"),
            "model.sharing": ("none", "all"),
            "model.token_types": max(1, settings.model.token_types),
        }

    def check(self, settings: Settings) -> None:
        """The map from the embedding is there only between different sizes."""
        super().check(settings)
        if (size := settings.model.embedding_size) == settings.hidden_size:
            raise Mistake(f"model.embedding_size={size}: {self.proper_name} has one that differs from hidden_size")

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A pooler without the classifier that it is for is left out: nothing of ours is made of it."""
        pooler = () if "sop_classifier.classifier.weight" in state else ("albert.pooler.",)
        return super().from_hugging_face({name: state[name] for name in state if not name.startswith(pooler)})
