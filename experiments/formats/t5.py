"""T5's checkpoints (Raffel et al. 2020, 1910.10683), versions 1.0 and 1.1, as transformers' T5ForConditionalGeneration.

T5 does not divide its logits by sqrt(d_k): its query map starts smaller by that factor, or takes it up on export.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.formats.format import Format
from experiments.formats.requirements import ACTIVATIONS, THEIR_ACTIVATIONS, require, text
from experiments.settings.run import Settings
from experiments.settings.variant import module_of

# what our model has to be
REQUIRED = {
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
DUPLICATES = frozenset({"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"})


class T5Format(Format):
    """T5, of version 1.0 or 1.1."""

    model_type: ClassVar[str] = "t5"
    frame: ClassVar[tuple[str, str]] = ("$A [SEP]", "$A [SEP] $B [SEP]")
    # a bias of the cross-attention, which T5 has not, in the published weights
    unused: ClassVar[str] = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"

    def completed(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
        """The config.json with `tie_word_embeddings` as its weights have it: transformers 5 writes true for every T5.

        An untrained model of version 1.1 is tied too. The version therefore says whether the output is scaled.
        """
        output, embedding = state.get("lm_head.weight"), state.get("shared.weight")
        tied = output is None or (embedding is not None and output.equal(embedding))
        scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
        return {**config, "tie_word_embeddings": tied, "scale_decoder_outputs": scaled}

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides of `attn train` that make our model the one of this config.json. Raises Mistake."""
        layers = config["num_layers"]
        if (deeper := config.get("num_decoder_layers")) not in (None, layers):
            raise Mistake(
                f"num_decoder_layers={deeper}, num_layers={layers}: both sides must have the same number of layers"
            )
        gated, activation = _activation(config.get("feed_forward_proj", "relu"))
        tied = config.get("tie_word_embeddings", True)
        values = {
            "objective": REQUIRED["objective.kind"],
            "variant": "unscaled",
            "hidden_size": config["d_model"],
            "layers": layers,
            "heads": config["num_heads"],
            "key_size": config["d_kv"],
            "value_size": config["d_kv"],
            **{key: value for key, value in REQUIRED.items() if key != "objective.kind"},
            "model.intermediate_size": config["d_ff"],
            "model.norm_epsilon": config.get("layer_norm_epsilon", 1e-6),
            "model.relative_buckets": config.get("relative_attention_num_buckets", 32),
            "model.relative_distance": config.get("relative_attention_max_distance", 128),
            "model.activation": activation,
            "model.gated": gated,
            "model.tied": tied,
            "model.output_scaled": config.get("scale_decoder_outputs", tied),
            "model.dropout": config.get("dropout_rate", 0.1),
            "model.attention_dropout": config.get("dropout_rate", 0.1),
            "model.initial_std": None,
        }
        if "n_positions" in config:
            values["length"] = config["n_positions"]
        return [f"{key}={text(value)}" for key, value in values.items()]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """The config.json of our model. Raises Mistake that names what T5's format can't express."""
        _check(settings)
        model = settings.model
        theirs = THEIR_ACTIVATIONS[model.activation]
        if model.gated:
            theirs = "gated-gelu" if model.activation == "gelu_tanh" else f"gated-{theirs}"
        tied = model.tied and model.output_scaled
        return {
            "model_type": self.model_type,
            "architectures": ["T5ForConditionalGeneration"],
            "is_encoder_decoder": True,
            "vocab_size": vocabulary_size,
            "d_model": model.hidden_size,
            "d_kv": settings.variant["key_size"],
            "d_ff": model.intermediate_size,
            "num_layers": model.layers,
            "num_decoder_layers": model.layers,
            "num_heads": settings.variant["heads"],
            "relative_attention_num_buckets": model.relative_buckets,
            "relative_attention_max_distance": model.relative_distance,
            "dropout_rate": model.dropout,
            "layer_norm_epsilon": model.norm_epsilon,
            "feed_forward_proj": theirs,
            "tie_word_embeddings": tied,
        }

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """The config.json with special tokens, of which T5 has one before its targets and none before its inputs."""
        rest = {name: value for name, value in tokens.items() if name != "bos_token_id"}
        return {**config, **rest, "decoder_start_token_id": tokens["bos_token_id"]}

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our state dict, with the same tensors; without an output embedding if it is the input's.

        Raises Mistake for a name that such a model does not have.
        """
        layers = len({match[1] for name in state if (match := re.match(r"encoder\.block\.(\d+)\.", name))})
        ours = {theirs: ours for ours, theirs in names(layers, gated=any("wi_0" in name for name in state)).items()}
        if unknown := sorted(state.keys() - ours.keys() - DUPLICATES):
            raise Mistake(f"{unknown[0]} is not a weight of a T5ForConditionalGeneration")
        taken = {ours[name]: tensor for name, tensor in state.items() if name in ours}
        output = taken.get("head.output.weight")
        if output is not None and output.equal(taken["embedding.token.weight"]):
            del taken["head.output.weight"]
        return taken

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names; the query maps and the output map take up the scales of their products."""
        _check(settings)
        model, variant = settings.model, settings.variant
        theirs = {name: state[ours] for ours, name in names(model.layers, model.gated).items() if ours in state}
        if variant["scaled"]:
            scale = variant["key_size"] ** -0.5
            queries = [name for name in theirs if name.endswith("Attention.q.weight")]
            theirs |= {name: theirs[name] * scale for name in queries}
        embedding = theirs["shared.weight"]
        if not model.tied and model.output_scaled:
            theirs["lm_head.weight"] = theirs["lm_head.weight"] * model.hidden_size**-0.5
        elif model.tied and not model.output_scaled:
            # T5 scales where it ties: the same matrix once more is an untied one
            theirs["lm_head.weight"] = embedding.clone()
        elif model.tied:
            theirs["lm_head.weight"] = embedding
        return theirs | dict.fromkeys(sorted(DUPLICATES), embedding)


def names(layers: int, gated: bool) -> dict[str, str]:
    """Every weight that such a model may have, ours -> theirs."""
    modules = {"embedding.token": "shared", "head.output": "lm_head"}
    for side, feed_forward in (("encoder", 1), ("decoder", 2)):
        modules[f"{side}.norm"] = f"{side}.final_layer_norm"
        modules[f"{side}_relative.table"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        for i in range(layers):
            ours, theirs = f"{side}.layers.{i}", f"{side}.block.{i}.layer"
            sublayers = [("attention", f"{theirs}.0", "SelfAttention")]
            if side == "decoder":
                sublayers.append(("cross_attention", f"{theirs}.1", "EncDecAttention"))
            for sublayer, place, attention in sublayers:
                modules[f"{ours}.{sublayer}_residual.norm"] = f"{place}.layer_norm"
                for linear in ("query", "key", "value", "output"):
                    modules[f"{ours}.{sublayer}.{linear}"] = f"{place}.{attention}.{linear[0]}"
            place = f"{theirs}.{feed_forward}"
            modules[f"{ours}.feed_forward_residual.norm"] = f"{place}.layer_norm"
            inner = {"gate": "wi_0", "inner": "wi_1"} if gated else {"inner": "wi"}
            for linear, name in (inner | {"outer": "wo"}).items():
                modules[f"{ours}.feed_forward.{linear}"] = f"{place}.DenseReluDense.{name}"
    return {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in modules.items()}


def _activation(name: str) -> tuple[bool, str]:
    """(gated, ours) of T5's feed_forward_proj."""
    gated, activation = name.startswith("gated-"), name.removeprefix("gated-")
    # the one name that does not mean what it says
    if name == "gated-gelu":
        activation = "gelu_new"
    if activation not in ACTIVATIONS:
        raise Mistake(
            f"feed_forward_proj={name}: must be one of {', '.join(ACTIVATIONS)}, or gated- followed by one of them"
        )
    return gated, ACTIVATIONS[activation]


def _check(settings: Settings) -> None:
    model, variant = settings.model, settings.variant
    needed = REQUIRED | {"value_size": settings.key_size}
    if module_of(variant) != "multi_head":
        needed["variant.name"] = "multi_head"
    if model.gated and model.activation == "gelu":
        needed["model.activation"] = "gelu_tanh"
    require("T5", settings, needed)
