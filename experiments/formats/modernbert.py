"""ModernBERT (Warner et al. 2024, 2412.13663), as Hugging Face's `ModernBertForMaskedLM` stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.keys import READ_ACTIVATIONS, THEIR_ACTIVATIONS, read, read_choice, require
from experiments.settings.run import Settings

EVEN = "ModernBERT rotates pairs of features, so it must be even"


class ModernBertFormat(Format):
    """ModernBERT with its masked-token head. Old and new versions of transformers read its config.json alike."""

    model_type: ClassVar[str] = "modernbert"
    proper_name: ClassVar[str] = "ModernBERT"
    architecture: ClassVar[str] = "ModernBertForMaskedLM"
    fixed_settings: ClassVar[Mapping[str, Any]] = {
        **Format.fixed_settings,
        "variant.scaled": True,
        "norm": "pre",
        "model.norm_kind": "layer_no_bias",
        "model.position": "rotary",
        "model.embedding_norm": True,
        "model.first_norm": False,
        "model.gated": True,
        "model.linear_bias": False,
        "model.token_types": 0,
        "model.head_transform": True,
        "model.tied": True,
        "model.head_bias": True,
        "model.output_scaled": False,
        "model.dropout": 0.0,
    }
    fixed_keys: ClassVar[Mapping[str, Any]] = {
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "tie_word_embeddings": True,
        "embedding_dropout": 0.0,
        "mlp_dropout": 0.0,
    }
    same_values: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "hidden_size": ("hidden_size", 768),
        "layers": ("num_hidden_layers", 22),
        "heads": ("num_attention_heads", int),
        "length": ("max_position_embeddings", 8192),
        "model.intermediate_size": ("intermediate_size", 1152),
        "model.norm_epsilon": ("norm_eps", 1e-5),
        "model.attention_dropout": ("attention_dropout", 0.0),
        "model.initial_std": ("initializer_range", 0.02),
    }
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
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
        "decoder": "head.output",
    }

    def settings_of(self, config: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
        """The activation, which the head shares, and what differs between local and other layers."""
        size = same["hidden_size"] // same["heads"]
        if size % 2:
            raise Mistake(f"hidden_size / num_attention_heads = {size} of config.json: {EVEN}")
        activation = read_choice(config, "hidden_activation", "gelu", READ_ACTIVATIONS)
        theirs = config.get("hidden_activation", "gelu")
        require({"classifier_activation": "gelu", **config}, {"classifier_activation": theirs, "rope_scaling": None})
        every = _global_every(config, same["layers"])
        return {
            "key_size": size,
            "value_size": size,
            "model.activation": activation,
            "model.local_window": None if every == 1 else read(config, "local_attention", 128) // 2,
            "model.global_every": every,
            "model.rotary_base": _rotary_base(config, "full_attention", "global_rope_theta", 160000.0),
            "model.local_rotary_base": _rotary_base(config, "sliding_attention", "local_rope_theta", 10000.0),
        }

    def keys_of(self, settings: Settings) -> dict[str, Any]:
        """The activation of the layers and the head, and what differs between local and other layers."""
        model = settings.model
        activation = THEIR_ACTIVATIONS[model.activation]
        return {
            "hidden_activation": activation,
            "classifier_activation": activation,
            # of the map before the output, which has a bias here
            "classifier_bias": True,
            "local_attention": 2 * (model.local_window or 64),
            "global_attn_every_n_layers": 1 if model.local_window is None else model.global_every,
            "global_rope_theta": model.rotary_base,
            "local_rope_theta": model.local_rotary_base,
        }

    def check(self, settings: Settings) -> None:
        """The key size must be even."""
        if settings.key_size % 2:
            raise Mistake(f"key_size={settings.key_size}: {EVEN}")
        super().check(settings)

    def needs(self, settings: Settings) -> dict[str, Any]:
        """Embeddings as wide as the layers, which may be local."""
        model = settings.model
        sizes = {"model.embedding_size": model.hidden_size, "model.local_window": model.local_window}
        return super().needs(settings) | sizes

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """Both names of the first and the last token of a text."""
        return {
            **super().with_tokens(config, tokens),
            "cls_token_id": tokens["bos_token_id"],
            "sep_token_id": tokens["eos_token_id"],
        }

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, where the map before the output may have no bias."""
        ours = super().from_hugging_face(state)
        if (dense := ours.get("head.transform.dense.weight")) is not None:
            ours.setdefault("head.transform.dense.bias", dense.new_zeros(len(dense)))
        return ours


def _global_every(config: Mapping[str, Any], layers: int) -> int:
    """The number of layers of which the first attends to all tokens, in an old or a new configuration."""
    types = config.get("layer_types")
    if types is None:
        every: int = read(config, "global_attn_every_n_layers", 3)
        return every
    for every in range(1, layers + 1):
        if types == ["sliding_attention" if i % every else "full_attention" for i in range(layers)]:
            return every
    raise Mistake(
        f"layer_types = {types} of config.json: full_attention must be the first of every fixed number of layers"
    )


def _rotary_base(config: Mapping[str, Any], kind: str, old: str, default: float) -> float:
    """The base of the rotation in the layers of this kind, as old or new versions of transformers write it."""
    base = float(read(config, old, default))
    for key in ("rope_parameters", kind):
        if config.get(key) is None:
            return base
        config = read(config, key, dict)
    require(config, {"rope_type": "default"})
    return float(read(config, "rope_theta", base))
