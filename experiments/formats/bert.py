"""`BertForMaskedLM` of transformers, and the same with sizes of its own (RoBERTa+, bert4keras).

A key size or value size other than hidden_size / heads, and an embedding narrower than the layers, stand in config.json
as bert4keras writes them, `attention_key_size`, `attention_head_size` and `embedding_size`: transformers doesn't know
these keys, and refuses such weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from experiments.formats.format import Format
from experiments.formats.keys import READ_ACTIVATIONS, THEIR_ACTIVATIONS, read, read_choice
from experiments.formats.source import read_config, read_weights
from experiments.settings.run import Settings

# keys of bert4keras -> settings
OWN_SIZES = {
    "attention_key_size": "key_size",
    "attention_head_size": "value_size",
    "embedding_size": "model.embedding_size",
}
# parameters of a LayerNorm in checkpoints that were once TensorFlow's
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class BertFormat(Format):
    """BERT with its masked-token head. Its subclasses are the same function under other names."""

    model_type: ClassVar[str] = "bert"
    proper_name: ClassVar[str] = "BERT"
    architecture: ClassVar[str] = "BertForMaskedLM"
    # the pooler and the next-sentence head of a pre-training checkpoint, and positions that are only counted
    unused: ClassVar[str] = r"bert\.pooler\..*|cls\.seq_relationship\..*|bert\.embeddings\.position_ids"
    fixed_settings: ClassVar[Mapping[str, Any]] = {
        **Format.fixed_settings,
        "variant.scaled": True,
        "norm": "post",
        "model.norm_kind": "layer",
        "model.embedding_norm": True,
        "model.position": "learned",
        "model.gated": False,
        "model.linear_bias": True,
        "model.head_transform": True,
        "model.head_bias": True,
        "model.output_scaled": False,
    }
    mechanisms: ClassVar[tuple[str, ...]] = ("multi_head", "low_rank_value")
    fixed_keys: ClassVar[Mapping[str, Any]] = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }
    same_values: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "hidden_size": ("hidden_size", int),
        "layers": ("num_hidden_layers", int),
        "heads": ("num_attention_heads", int),
        "length": ("max_position_embeddings", int),
        "model.intermediate_size": ("intermediate_size", int),
        "model.norm_epsilon": ("layer_norm_eps", 1e-12),
        "model.token_types": ("type_vocab_size", 2),
        "model.dropout": ("hidden_dropout_prob", 0.1),
        "model.attention_dropout": ("attention_probs_dropout_prob", 0.1),
        "model.initial_std": ("initializer_range", 0.02),
        "model.tied": ("tie_word_embeddings", True),
    }
    activation: ClassVar[str] = "hidden_act"  # its key of config.json
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "bert.embeddings.word_embeddings": "embedding.token",
        "bert.embeddings.position_embeddings": "embedding.position",
        "bert.embeddings.token_type_embeddings": "embedding.token_type",
        "bert.embeddings.LayerNorm": "embedding.norm",
        "bert.encoder.embedding_hidden_mapping_in": "embedding.projection",
        "bert.encoder.layer.N.attention.self.query": "encoder.layers.N.attention.query",
        "bert.encoder.layer.N.attention.self.key": "encoder.layers.N.attention.key",
        "bert.encoder.layer.N.attention.self.value": "encoder.layers.N.attention.value",
        "bert.encoder.layer.N.attention.output.dense": "encoder.layers.N.attention.output",
        "bert.encoder.layer.N.attention.output.LayerNorm": "encoder.layers.N.attention_residual.norm",
        "bert.encoder.layer.N.intermediate.dense": "encoder.layers.N.feed_forward.inner",
        "bert.encoder.layer.N.output.dense": "encoder.layers.N.feed_forward.outer",
        "bert.encoder.layer.N.output.LayerNorm": "encoder.layers.N.feed_forward_residual.norm",
        "cls.predictions.transform.dense": "head.transform.dense",
        "cls.predictions.transform.LayerNorm": "head.transform.norm",
        "cls.predictions.decoder": "head.output",
        "cls.predictions": "head",
    }

    def settings_of(self, config: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
        """The activation, the length without positions that no token has, and the sizes of the heads."""
        value_size = read(config, "attention_head_size", None) or same["hidden_size"] // same["heads"]
        return {
            "length": same["length"] - self.first_position(config),
            "key_size": read(config, "attention_key_size", None) or value_size,
            "value_size": value_size,
            "model.embedding_size": read(config, "embedding_size", None) or same["hidden_size"],
            "model.activation": read_choice(config, self.activation, "gelu", READ_ACTIVATIONS),
        }

    def keys_of(self, settings: Settings) -> dict[str, Any]:
        """The activation, and sizes that transformers doesn't know."""
        return {self.activation: THEIR_ACTIVATIONS[settings.model.activation], **_own_sizes(settings)}

    def needs(self, settings: Settings) -> dict[str, Any]:
        """Heads of any size."""
        types = max(1, settings.model.token_types)
        return {"model.token_types": types, **self.fixed_settings, **self.variant_of(settings)}

    def note(self, settings: Settings) -> str | None:
        """A note on sizes that transformers cannot hold."""
        sizes = ", ".join(f"{OWN_SIZES[theirs]}={size} as {theirs}" for theirs, size in _own_sizes(settings).items())
        return f"only for `attn import`, because transformers does not load such weights: {sizes}" if sizes else None

    def in_transformers(self, folder: Path, architecture: str) -> nn.Module:
        """Transformers' model; for sizes that it does not load, its BERT with heads that zeros widen."""
        config = read_config(folder)
        if self.model_type != "bert" or OWN_SIZES.keys().isdisjoint(config):
            return super().in_transformers(folder, architecture)
        from experiments.formats.own_sizes import bert_of_own_sizes

        _, state = read_weights(folder)
        return bert_of_own_sizes(config, {_modern(name): tensor.float() for name, tensor in state.items()})

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, also if it has old names."""
        return super().from_hugging_face({_modern(name): tensor for name, tensor in state.items()})


def _own_sizes(settings: Settings) -> dict[str, int]:
    """The sizes that transformers doesn't know, by the keys of bert4keras."""
    key_size, value_size, embedding_size = settings.key_size, settings.value_size, settings.model.embedding_size
    plain = key_size * settings.heads == value_size * settings.heads == settings.hidden_size
    heads = {} if plain else {"attention_key_size": key_size, "attention_head_size": value_size}
    return heads | ({} if embedding_size == settings.hidden_size else {"embedding_size": embedding_size})


def _modern(name: str) -> str:
    for old, new in OLD.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
