"""`BertForMaskedLM` of transformers, and the same with sizes of its own (RoBERTa+, bert4keras).

A key size or value size other than hidden_size / heads, and an embedding narrower than the layers, stand in config.json
as bert4keras writes them, `attention_key_size`, `attention_head_size` and `embedding_size`: transformers doesn't know
these keys, and refuses such weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.names import Names
from experiments.formats.requirements import THEIR_ACTIVATIONS, our_activation, require_config, text
from experiments.formats.source import read_config, read_weights
from experiments.settings.run import Settings

# keys of bert4keras
OWN_SIZES = {"attention_key_size", "attention_head_size", "embedding_size"}
# the settings that a BERT checkpoint requires, by a group's key or a key that people vary
FIXED = {
    "norm": "post",
    "model.norm_kind": "layer",
    "model.sharing": "none",
    "model.embedding_norm": True,
    "model.position": "learned",
    "model.gated": False,
    "model.linear_bias": True,
    "model.head_transform": True,
    "model.head_bias": True,
    "model.output_scaled": False,
}
# settings -> config.json, where they are the same number
SAME_NUMBERS = {
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "length": "max_position_embeddings",
    "model.intermediate_size": "intermediate_size",
    "model.norm_epsilon": "layer_norm_eps",
    "model.token_types": "type_vocab_size",
    "model.dropout": "hidden_dropout_prob",
    "model.attention_dropout": "attention_probs_dropout_prob",
    "model.initial_std": "initializer_range",
}
# what transformers takes for a key that is not there
DEFAULTS: dict[str, Any] = {
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "hidden_act": "gelu",
    "tie_word_embeddings": True,
}
# their names -> ours, without the parameter at the end; N: the number of the layer
RENAMED = {
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
# parameters of a LayerNorm in checkpoints that were once TensorFlow's
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class BertFormat(Format):
    """BERT with its masked-token head. Its subclasses are the same function under other names."""

    model_type: ClassVar[str] = "bert"
    proper_name: ClassVar[str] = "BERT"  # in messages
    architecture: ClassVar[str] = "BertForMaskedLM"
    # the pooler and the next-sentence head of a pre-training checkpoint, and positions that are only counted
    unused: ClassVar[str] = r"bert\.pooler\..*|cls\.seq_relationship\..*|bert\.embeddings\.position_ids"
    renamed: ClassVar[dict[str, str]] = RENAMED
    same_numbers: ClassVar[dict[str, str]] = SAME_NUMBERS
    activation: ClassVar[str] = "hidden_act"
    fixed: ClassVar[dict[str, Any]] = FIXED
    defaults: ClassVar[dict[str, Any]] = DEFAULTS

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides that make our model theirs. Raises Mistake that names what we don't have."""
        complete = self.defaults | dict(config)
        if missing := sorted(set(self.same_numbers.values()) - set(complete)):
            raise Mistake(f"config.json lacks {', '.join(missing)}")
        require_config(
            complete,
            {
                "position_embedding_type": "absolute",
                "is_decoder": False,
                "add_cross_attention": False,
                "sinusoidal_pos_embds": False,
            },
        )
        numbers = {ours: complete[theirs] for ours, theirs in self.same_numbers.items()}
        value_size = complete.get("attention_head_size") or numbers["hidden_size"] // numbers["heads"]
        values = {
            "variant": "multi_head",
            "objective": "masked",
            **self.fixed,
            **numbers,
            "length": numbers["length"] - self.first_position(complete),
            "key_size": complete.get("attention_key_size") or value_size,
            "value_size": value_size,
            "model.embedding_size": complete.get("embedding_size") or numbers["hidden_size"],
            "model.activation": our_activation(complete[self.activation]),
            "model.tied": bool(complete["tie_word_embeddings"]),
        }
        return [f"{key}={text(value)}" for key, value in values.items()]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """The config.json of our model. low_rank_value is multi-head attention with the same parameters, so it is
        expressed too.
        """
        if problems := list(self._inexpressible(settings)):
            raise Mistake("; ".join(problems))
        written = {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "vocab_size": vocabulary_size,
            **{theirs: _value(settings, ours) for ours, theirs in self.same_numbers.items()},
            self.activation: THEIR_ACTIVATIONS[settings.model.activation],
            "tie_word_embeddings": settings.model.tied,
        }
        if not _has_plain_heads(settings):
            written |= {"attention_key_size": settings.key_size, "attention_head_size": settings.value_size}
        if settings.model.embedding_size != settings.hidden_size:
            written["embedding_size"] = settings.model.embedding_size
        return written

    def note(self, settings: Settings) -> str | None:
        """A note on sizes that transformers cannot hold."""
        own = (
            {}
            if _has_plain_heads(settings)
            else {"key_size": "attention_key_size", "value_size": "attention_head_size"}
        )
        if settings.model.embedding_size != settings.hidden_size:
            own["model.embedding_size"] = "embedding_size"
        if not own:
            return None
        sizes = ", ".join(f"{key}={_value(settings, key)} as {theirs}" for key, theirs in own.items())
        return f"only for `attn import`, because transformers does not load such weights: {sizes}"

    def in_transformers(self, folder: Path, architecture: str) -> nn.Module:
        """Transformers' model; for sizes that it does not load, its BERT with heads that zeros widen."""
        config = read_config(folder)
        if self.model_type != "bert" or OWN_SIZES.isdisjoint(config):
            return super().in_transformers(folder, architecture)
        from experiments.formats.own_sizes import bert_of_own_sizes

        _, state = read_weights(folder)
        return bert_of_own_sizes(config, {_modern(name): tensor.float() for name, tensor in state.items()})

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names; without an output embedding if it is the input's."""
        ours = self._names.to_ours({_modern(name): tensor for name, tensor in state.items()})
        if "head.bias" not in ours and "head.output.bias" not in ours:
            head = next(theirs for theirs, module in self.renamed.items() if module == "head.transform.dense")
            raise Mistake(f"there is no masked-token head ({head}) in this checkpoint")
        # the bias is stored twice, and the decoder's is the one that is added
        ours["head.bias"] = ours.pop("head.output.bias", ours.get("head.bias"))  # type: ignore[arg-type]
        output = ours.get("head.output.weight")
        if output is not None and torch.equal(output, ours["embedding.token.weight"]):
            del ours["head.output.weight"]
        return ours

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names; the output bias is stored under each name that it has."""
        # DistilBERT stores it under one name
        twice = "head" in self.renamed.values()
        theirs = self._names.to_theirs({name: state[name] for name in state if twice or name != "head.bias"})
        output = next(theirs for theirs, module in self.renamed.items() if module == "head.output")
        return theirs | {f"{output}.bias": state["head.bias"].clone()}

    @property
    def _names(self) -> Names:
        return Names(self.renamed, f"a {self.architecture}")

    def _inexpressible(self, settings: Settings) -> Iterator[str]:
        variant, name = settings.variant, self.proper_name
        if variant["name"] not in ("multi_head", "low_rank_value") or not variant["scaled"]:
            unscaled = " with scaled=false" if variant.get("scaled") is False else ""
            yield f"variant={variant['name']}{unscaled} is not the attention of a {name}"
        if settings.objective.kind != "masked":
            yield f"objective={settings.objective.kind}: a {name} predicts masked tokens"
        for key, needed in self.fixed.items():
            if (value := _value(settings, key)) != needed:
                yield f"{key}={text(value)}: a {name} has {text(needed)}"
        if "model.token_types" in self.same_numbers and settings.model.token_types < 1:
            yield f"model.token_types=0: a {name} has at least 1"


def _has_plain_heads(settings: Settings) -> bool:
    return settings.key_size * settings.heads == settings.value_size * settings.heads == settings.hidden_size


def _value(settings: Settings, key: str) -> Any:
    group, _, name = key.rpartition(".")
    return getattr(getattr(settings, group) if group else settings, name)


def _modern(name: str) -> str:
    for old, new in OLD.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
