"""GPT-2 (Radford et al. 2019), as Hugging Face's `GPT2LMHeadModel` stores it."""

# D hidden size; their `Conv1D` holds [in, out], a linear map of ours [out, in]

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

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
# settings -> config.json, where they are the same number
SAME_NUMBERS = {
    "hidden_size": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "length": "n_positions",
    "model.intermediate_size": "n_inner",
    "model.norm_epsilon": "layer_norm_epsilon",
    "model.dropout": "resid_pdrop",
    "model.attention_dropout": "attn_pdrop",
    "model.initial_std": "initializer_range",
}
NAMES = Names(
    {
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
    },
    "a GPT2LMHeadModel",
)
TRANSPOSED = re.compile(r".*\.c_(attn|proj|fc)\.weight")
IGNORED = re.compile(r".*\.attn\.(masked_)?bias")  # the causal mask, which older versions stored
# what transformers takes for a key that is not there
DEFAULTS: dict[str, Any] = {
    "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "activation_function": "gelu_new",
    "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
}  # fmt: skip
PUBLISHED = re.compile(r"(wte|wpe|ln_f|h)\..*")  # names of the published weights, which lack the model's own


class Gpt2Format(Format):
    """GPT-2 with its language-modelling head."""

    model_type: ClassVar[str] = "gpt2"
    frame: ClassVar[tuple[str, str]] = ("[CLS] $A", "[CLS] $A [SEP] $B")

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The overrides that make our model theirs. Raises Mistake that names what we don't have."""
        config = DEFAULTS | dict(config)
        needed = {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
        require_config(config, {**needed, "embd_pdrop": config["resid_pdrop"]})
        config["n_inner"] = config.get("n_inner") or 4 * config["n_embd"]
        values = {
            "objective": "causal",
            "variant": "multi_head",
            "variant.scaled": config.get("scale_attn_weights", True),
            **FIXED,
            **{ours: config[theirs] for ours, theirs in SAME_NUMBERS.items()},
            "model.activation": our_activation(config["activation_function"]),
            "model.tied": config.get("tie_word_embeddings", True),
        }
        return [f"{key}={text(value)}" for key, value in values.items()]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """A `config.json` for our model. Raises Mistake that names what GPT-2 doesn't have."""
        _check(settings)
        tree, model = settings.model_dump(), settings.model
        return {
            "model_type": self.model_type,
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": vocabulary_size,
            **{theirs: value_at(tree, ours) for ours, theirs in SAME_NUMBERS.items()},
            "activation_function": THEIR_ACTIVATIONS[model.activation],
            "embd_pdrop": model.dropout,
            "scale_attn_weights": settings.variant["scaled"],
            "tie_word_embeddings": model.tied,
        }

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names; without an output embedding if it is the input's.

        Raises Mistake for an unknown name.
        """
        theirs = {f"transformer.{name}" if PUBLISHED.fullmatch(name) else name: state[name] for name in state}
        ours = NAMES.to_ours(_transposed({name: theirs[name] for name in theirs if not IGNORED.fullmatch(name)}))
        output = ours.get("head.output.weight")
        if output is not None and torch.equal(output, ours["embedding.token.weight"]):
            del ours["head.output.weight"]
        return {name: tensor.contiguous() for name, tensor in ours.items()}

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names. Raises Mistake that names what GPT-2 doesn't have."""
        _check(settings)
        theirs = _transposed(NAMES.to_theirs(state))
        theirs.setdefault("lm_head.weight", theirs["transformer.wte.weight"])
        return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _transposed(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their state dict with the weights of each `Conv1D` as those of a linear map, or the other way round."""
    return {name: tensor.T if TRANSPOSED.fullmatch(name) else tensor for name, tensor in theirs.items()}


def _check(settings: Settings) -> None:
    sizes = dict.fromkeys(("key_size", "value_size"), head_size(settings))
    needed = {"objective.kind": "causal", "variant.name": "multi_head", "model.sharing": "none"} | FIXED | sizes
    require("GPT-2", settings, needed | {"model.embedding_size": settings.hidden_size})
