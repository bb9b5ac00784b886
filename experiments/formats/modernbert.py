"""ModernBERT (Warner et al. 2024, 2412.13663), as Hugging Face's `ModernBertForMaskedLM` stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.names import Names
from experiments.formats.requirements import head_size, our_activation, require, require_config, text
from experiments.record.dotted import value_at
from experiments.settings.run import Settings

ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
FIXED = {
    "norm": "pre",
    "model.norm_kind": "layer_no_bias",
    "model.position": "rotary",
    "model.embedding_norm": True,
    "model.first_norm": False,
    "model.sharing": "none",
    "model.gated": True,
    "model.linear_bias": False,
    "model.token_types": 0,
    "model.head_transform": True,
    "model.tied": True,
    "model.head_bias": True,
    "model.output_scaled": False,
    "model.dropout": 0.0,
}
NEEDED = {
    "norm_bias": False, "attention_bias": False, "mlp_bias": False, "decoder_bias": True, "tie_word_embeddings": True,
    "embedding_dropout": 0.0, "mlp_dropout": 0.0,
}  # fmt: skip
EVEN = "ModernBERT rotates pairs of features, so it must be even"
# what transformers takes for a key that is not there
DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12,
    "max_position_embeddings": 8192, "norm_eps": 1e-5, "initializer_range": 0.02, "attention_dropout": 0.0,
    "hidden_activation": "gelu", "local_attention": 128, "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
}  # fmt: skip
SAME_NUMBERS = {
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "length": "max_position_embeddings",
    "model.intermediate_size": "intermediate_size",
    "model.norm_epsilon": "norm_eps",
    "model.attention_dropout": "attention_dropout",
    "model.initial_std": "initializer_range",
}
NAMES = Names(
    {
        "model.embeddings.tok_embeddings": "embedding.token",
        "model.embeddings.norm": "embedding.norm",
        "model.layers.N.attn_norm": "encoder.layers.N.attention_residual.norm",
        "model.layers.N.attn.Wqkv": (
            "encoder.layers.N.attention.query",
            "encoder.layers.N.attention.key",
            "encoder.layers.N.attention.value",
        ),
        "model.layers.N.attn.Wo": "encoder.layers.N.attention.output",
        "model.layers.N.mlp_norm": "encoder.layers.N.feed_forward_residual.norm",
        "model.layers.N.mlp.Wi": ("encoder.layers.N.feed_forward.gate", "encoder.layers.N.feed_forward.inner"),
        "model.layers.N.mlp.Wo": "encoder.layers.N.feed_forward.outer",
        "model.final_norm": "encoder.norm",
        "head.dense": "head.transform.dense",
        "head.norm": "head.transform.norm",
        "decoder": "head",
    },
    "a ModernBertForMaskedLM",
)


class ModernBertFormat(Format):
    """ModernBERT with its masked-token head."""

    model_type: ClassVar[str] = "modernbert"

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides that make our model theirs. Raises Mistake that names what we don't have."""
        complete = DEFAULTS | dict(config)
        activation = complete["hidden_activation"]
        require_config(complete, NEEDED | {"classifier_activation": activation, "rope_scaling": None})
        size = complete["hidden_size"] // complete["num_attention_heads"]
        if size % 2:
            raise Mistake(f"hidden_size / num_attention_heads = {size} of config.json: {EVEN}")
        every, bases = _global_every(complete), _rotary_bases(complete)
        values = {
            "objective": "masked",
            "variant": "multi_head",
            **FIXED,
            **{ours: complete[theirs] for ours, theirs in SAME_NUMBERS.items()},
            "key_size": size,
            "value_size": size,
            "model.activation": our_activation(activation, ACTIVATIONS),
            "model.local_window": None if every == 1 else complete["local_attention"] // 2,
            "model.global_every": every,
            "model.rotary_base": bases["full_attention"],
            "model.local_rotary_base": bases["sliding_attention"],
        }
        return [f"{key}={text(value)}" for key, value in values.items()]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """A config.json that old and new versions of transformers read alike.

        Raises Mistake that names what ModernBERT doesn't have.
        """
        _check(settings)
        model, tree = settings.model, settings.model_dump()
        activation = {ours: theirs for theirs, ours in ACTIVATIONS.items()}[model.activation]
        return {
            "model_type": self.model_type,
            "architectures": ["ModernBertForMaskedLM"],
            "vocab_size": vocabulary_size,
            **{theirs: value_at(tree, ours) for ours, theirs in SAME_NUMBERS.items()},
            **NEEDED,
            "hidden_activation": activation,
            "classifier_activation": activation,
            # of the map before the output, which has a bias here
            "classifier_bias": True,
            "local_attention": 2 * (model.local_window or 64),
            "global_attn_every_n_layers": 1 if model.local_window is None else model.global_every,
            "global_rope_theta": model.rotary_base,
            "local_rope_theta": model.local_rotary_base,
        }

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """Both names of the first and the last token of a text."""
        return {
            **super().with_tokens(config, tokens),
            "cls_token_id": tokens["bos_token_id"],
            "sep_token_id": tokens["eos_token_id"],
        }

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, where the map before the output may have no bias.

        Raises Mistake for an unknown name.
        """
        ours = NAMES.to_ours(state)
        output = ours.pop("head.weight", None)
        if output is not None and not torch.equal(output, ours["embedding.token.weight"]):
            raise Mistake("decoder.weight differs from the input embedding; ModernBERT ties the two")
        dense = ours.get("head.transform.dense.weight")
        if dense is None:
            raise Mistake("there is no masked-token head (head.dense) in this checkpoint")
        ours.setdefault("head.transform.dense.bias", dense.new_zeros(len(dense)))
        return {name: tensor.contiguous() for name, tensor in ours.items()}

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names. Raises Mistake that names what ModernBERT doesn't have."""
        _check(settings)
        theirs = NAMES.to_theirs(state)
        theirs["decoder.weight"] = theirs["model.embeddings.tok_embeddings.weight"]
        return theirs


def _global_every(config: Mapping[str, Any]) -> int:
    """The number of layers of which the first attends to all tokens, in an old or a new configuration."""
    types = config.get("layer_types")
    if types is None:
        return int(config["global_attn_every_n_layers"])
    for every in range(1, len(types) + 1):
        if types == ["sliding_attention" if i % every else "full_attention" for i in range(len(types))]:
            return every
    raise Mistake(
        f"layer_types = {types} of config.json: full_attention must be the first of every fixed number of layers"
    )


def _rotary_bases(config: Mapping[str, Any]) -> dict[str, float]:
    """The base of the rotation by the type of layer, as old or new versions of transformers write it."""
    bases = {"full_attention": config["global_rope_theta"], "sliding_attention": config["local_rope_theta"]}
    for kind, parameters in (config.get("rope_parameters") or {}).items():
        require_config(parameters, {"rope_type": "default"})
        bases[kind] = parameters.get("rope_theta", bases.get(kind))
    return bases


def _check(settings: Settings) -> None:
    if settings.key_size % 2:
        raise Mistake(f"key_size={settings.key_size}: {EVEN}")
    sizes = dict.fromkeys(("key_size", "value_size"), head_size(settings))
    needed = FIXED | sizes | {"objective.kind": "masked", "variant.name": "multi_head", "variant.scaled": True}
    require("ModernBERT", settings, needed | {"model.embedding_size": settings.hidden_size})
