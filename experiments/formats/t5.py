"""T5's checkpoints (Raffel et al. 2020, 1910.10683), versions 1.0 and 1.1, as transformers' T5ForConditionalGeneration.

T5 does not divide its logits by sqrt(d_k): its query map starts smaller by that factor, or takes it up on export.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.keys import read, read_choice
from experiments.settings.run import Settings

# whether the feed-forward is gated, and its activation; the last name of each is the one that is written
FEED_FORWARDS = {
    "relu": (False, "relu"),
    "gelu": (False, "gelu"),
    "gelu_new": (False, "gelu_tanh"),
    "gated-relu": (True, "relu"),
    "gated-gelu_new": (True, "gelu_tanh"),
    # the one name that does not mean what it says
    "gated-gelu": (True, "gelu_tanh"),
}
THEIR_FEED_FORWARDS = {ours: theirs for theirs, ours in FEED_FORWARDS.items()}
SUBLAYERS = {
    "encoder": {"0.SelfAttention": "attention", "1.DenseReluDense": "feed_forward"},
    "decoder": {
        "0.SelfAttention": "attention",
        "1.EncDecAttention": "cross_attention",
        "2.DenseReluDense": "feed_forward",
    },
}
MAPS = {"q": "query", "k": "key", "v": "value", "o": "output"}
# wi and wi_1 are the same map, without and with a gate
FEED_FORWARD_MAPS = {"wi": "inner", "wi_0": "gate", "wi_1": "inner", "wo": "outer"}
DUPLICATES = ("decoder.embed_tokens.weight", "encoder.embed_tokens.weight")  # of the embedding


def _modules() -> dict[str, str]:
    modules = {"shared": "embedding.token", "lm_head": "head.output"}
    for side, sublayers in SUBLAYERS.items():
        modules[f"{side}.final_layer_norm"] = f"{side}.norm"
        # the layers share the bias of the first
        modules[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"] = f"{side}_relative.table"
        for theirs, ours in sublayers.items():
            modules[f"{side}.block.N.layer.{theirs[0]}.layer_norm"] = f"{side}.layers.N.{ours}_residual.norm"
            for name, linear in (FEED_FORWARD_MAPS if ours == "feed_forward" else MAPS).items():
                modules[f"{side}.block.N.layer.{theirs}.{name}"] = f"{side}.layers.N.{ours}.{linear}"
    return modules


class T5Format(Format):
    """T5, of version 1.0 or 1.1."""

    model_type: ClassVar[str] = "t5"
    proper_name: ClassVar[str] = "T5"
    architecture: ClassVar[str] = "T5ForConditionalGeneration"
    frame: ClassVar[tuple[str, str]] = ("$A [SEP]", "$A [SEP] $B [SEP]")
    # a bias of the cross-attention, which T5 has not, in the published weights
    unused: ClassVar[str] = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
    fixed_settings: ClassVar[Mapping[str, Any]] = {
        **Format.fixed_settings,
        "variant.name": "unscaled",
        "objective.kind": "span_corruption",
        "norm": "pre",
        "model.norm_kind": "rms",
        "model.position": "relative",
        "model.embedding_norm": False,
        "model.linear_bias": False,
        "model.token_types": 0,
        "model.first_norm": True,
        "model.head_transform": False,
        "model.head_bias": False,
    }
    fixed_keys: ClassVar[Mapping[str, Any]] = {"is_encoder_decoder": True}
    same_values: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "hidden_size": ("d_model", int),
        "layers": ("num_layers", int),
        "heads": ("num_heads", int),
        "key_size": ("d_kv", int),
        "model.intermediate_size": ("d_ff", int),
        "model.norm_epsilon": ("layer_norm_epsilon", 1e-6),
        "model.relative_buckets": ("relative_attention_num_buckets", 32),
        "model.relative_distance": ("relative_attention_max_distance", 128),
        "model.dropout": ("dropout_rate", 0.1),
        "model.tied": ("tie_word_embeddings", True),
    }
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = _modules()

    def completed(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
        """The config.json with `tie_word_embeddings` as its weights have it: transformers 5 writes true for every T5.

        An untrained model of version 1.1 is tied too. The version therefore says whether the output is scaled.
        """
        output, embedding = state.get("lm_head.weight"), state.get("shared.weight")
        tied = output is None or (embedding is not None and output.equal(embedding))
        scaled = read(config, "scale_decoder_outputs", read(config, "tie_word_embeddings", True))
        return {**config, "tie_word_embeddings": tied, "scale_decoder_outputs": scaled}

    def settings_of(self, config: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
        """The feed-forward, the scale of the output, and what has one number for two of ours."""
        layers, deeper = same["layers"], read(config, "num_decoder_layers", None)
        if deeper not in (None, layers):
            raise Mistake(
                f"num_decoder_layers={deeper}, num_layers={layers}: both sides must have the same number of layers"
            )
        gated, activation = read_choice(config, "feed_forward_proj", "relu", FEED_FORWARDS)
        length = read(config, "n_positions", None)
        return {
            **({"length": length} if length else {}),
            "value_size": same["key_size"],
            "model.activation": activation,
            "model.gated": gated,
            "model.output_scaled": read(config, "scale_decoder_outputs", same["model.tied"]),
            "model.attention_dropout": same["model.dropout"],
            "model.initial_std": None,
        }

    def keys_of(self, settings: Settings) -> dict[str, Any]:
        """The feed-forward, the depth of the decoder, and a tied output only where it is scaled too."""
        model = settings.model
        return {
            "num_decoder_layers": model.layers,
            # transformers has no use for it, but an import
            "n_positions": model.length,
            "feed_forward_proj": THEIR_FEED_FORWARDS[model.gated, model.activation],
            "tie_word_embeddings": model.tied and model.output_scaled,
        }

    def needs(self, settings: Settings) -> dict[str, Any]:
        """Multi-head attention, scaled or not, with any key size, one dropout, and an activation that has a name."""
        model = settings.model
        return {
            **self.fixed_settings,
            **self.variant_of(settings),
            "value_size": settings.key_size,
            "model.attention_dropout": model.dropout,
            "model.activation": "gelu_tanh" if model.gated and model.activation == "gelu" else model.activation,
        }

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """The config.json with special tokens, of which T5 has one before its targets and none before its inputs."""
        rest = {name: value for name, value in tokens.items() if name != "bos_token_id"}
        return {**config, **rest, "decoder_start_token_id": tokens["bos_token_id"]}

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, where the embedding is stored once."""
        return super().from_hugging_face({name: state[name] for name in state if name not in DUPLICATES})

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names; the query maps and the output map take up the scales of their products."""
        model, theirs = settings.model, super().to_hugging_face(state, settings)
        if not model.gated:
            theirs = {name.replace(".wi_1.", ".wi."): tensor for name, tensor in theirs.items()}
        if settings.variant["scaled"]:
            queries = [name for name in theirs if name.endswith("Attention.q.weight")]
            theirs |= {name: theirs[name] * settings.key_size**-0.5 for name in queries}
        if not model.tied and model.output_scaled:
            theirs["lm_head.weight"] = theirs["lm_head.weight"] * model.hidden_size**-0.5
        elif model.tied and not model.output_scaled:
            # T5 scales where it ties: the same matrix once more is an untied one
            theirs["lm_head.weight"] = theirs["lm_head.weight"].clone()
        return theirs | dict.fromkeys(DUPLICATES, theirs["shared.weight"])
