"""GPT-2 (Radford et al. 2019), as Hugging Face's `GPT2LMHeadModel` stores it."""

# their `Conv1D` holds [in, out], a linear map of ours [out, in]

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from experiments.formats.format import Format
from experiments.formats.keys import READ_ACTIVATIONS, THEIR_ACTIVATIONS, read_choice, require
from experiments.settings.run import Settings

TRANSPOSED = re.compile(r".*\.c_(attn|proj|fc)\.weight")
IGNORED = re.compile(r".*\.attn\.(masked_)?bias")  # the causal mask, which older versions stored
PUBLISHED = re.compile(r"(wte|wpe|ln_f|h)\..*")  # names of the published weights, which lack the model's own


class Gpt2Format(Format):
    """GPT-2 with its language-modelling head."""

    model_type: ClassVar[str] = "gpt2"
    proper_name: ClassVar[str] = "GPT-2"
    architecture: ClassVar[str] = "GPT2LMHeadModel"
    frame: ClassVar[tuple[str, str]] = ("[CLS] $A", "[CLS] $A [SEP] $B")
    fixed_settings: ClassVar[Mapping[str, Any]] = {
        **Format.fixed_settings,
        "objective.kind": "causal",
        "norm": "pre",
        "model.norm_kind": "layer",
        "model.position": "learned",
        "model.embedding_norm": False,
        "model.first_norm": True,
        "model.gated": False,
        "model.linear_bias": True,
        "model.token_types": 0,
        "model.head_transform": False,
        "model.head_bias": False,
        "model.output_scaled": False,
    }
    fixed_keys: ClassVar[Mapping[str, Any]] = {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    same_values: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "hidden_size": ("n_embd", 768),
        "layers": ("n_layer", 12),
        "heads": ("n_head", int),
        "length": ("n_positions", 1024),
        "variant.scaled": ("scale_attn_weights", True),
        "model.intermediate_size": ("n_inner", None),
        "model.norm_epsilon": ("layer_norm_epsilon", 1e-5),
        "model.dropout": ("resid_pdrop", 0.1),
        "model.attention_dropout": ("attn_pdrop", 0.1),
        "model.initial_std": ("initializer_range", 0.02),
        "model.tied": ("tie_word_embeddings", True),
    }
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "transformer.wte": "embedding.token",
        "transformer.wpe": "embedding.position",
        "transformer.h.N.ln_1": "encoder.layers.N.attention_residual.norm",
        "transformer.h.N.attn.c_attn": (
            "encoder.layers.N.attention.query",
            "encoder.layers.N.attention.key",
            "encoder.layers.N.attention.value",
        ),
        "transformer.h.N.attn.c_proj": "encoder.layers.N.attention.output",
        "transformer.h.N.ln_2": "encoder.layers.N.feed_forward_residual.norm",
        "transformer.h.N.mlp.c_fc": "encoder.layers.N.feed_forward.inner",
        "transformer.h.N.mlp.c_proj": "encoder.layers.N.feed_forward.outer",
        "transformer.ln_f": "encoder.norm",
        "lm_head": "head.output",
    }

    def settings_of(self, config: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
        """The activation and the inner size. All dropouts outside of the attention are one number here."""
        require({"embd_pdrop": 0.1, **config}, {"embd_pdrop": same["model.dropout"]})
        return {
            "model.activation": read_choice(config, "activation_function", "gelu_new", READ_ACTIVATIONS),
            "model.intermediate_size": same["model.intermediate_size"] or 4 * same["hidden_size"],
        }

    def keys_of(self, settings: Settings) -> dict[str, Any]:
        """The activation, and the dropout of the embeddings."""
        model = settings.model
        return {"activation_function": THEIR_ACTIVATIONS[model.activation], "embd_pdrop": model.dropout}

    def needs(self, settings: Settings) -> dict[str, Any]:
        """Embeddings as wide as the layers."""
        return super().needs(settings) | {"model.embedding_size": settings.hidden_size}

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names, also if it is a published one."""
        theirs = {f"transformer.{name}" if PUBLISHED.fullmatch(name) else name: state[name] for name in state}
        return super().from_hugging_face(
            _transposed({name: theirs[name] for name in theirs if not IGNORED.fullmatch(name)})
        )

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names."""
        theirs = _transposed(super().to_hugging_face(state, settings))
        return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _transposed(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their state dict with the weights of each `Conv1D` as those of a linear map, or the other way round."""
    return {name: tensor.T if TRANSPOSED.fullmatch(name) else tensor for name, tensor in theirs.items()}
