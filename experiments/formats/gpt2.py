"""GPT-2 (Radford et al. 2019), as Hugging Face's `GPT2LMHeadModel` stores it."""

# D hidden size; their `Conv1D` holds [in, out], a linear map of ours [out, in]

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
    "objective.kind": "causal",
    "variant.name": "multi_head",
    "norm": "pre",
    "model.norm_kind": "layer",
    "model.position": "learned",
    "model.embedding_norm": False,
    "model.sharing": "none",
    "model.gated": False,
    "model.linear_bias": True,
    "model.token_types": 0,
    "model.head_transform": False,
    "model.head_bias": False,
}
# ours by theirs, in front of .weight and .bias
MODULES = {
    "transformer.wte": "embedding.token",
    "transformer.wpe": "embedding.position",
    "transformer.ln_f": "encoder.norm",
    "lm_head": "head.output",
}
LAYER_MODULES = {
    "ln_1": "attention_residual.norm",
    "attn.c_proj": "attention.output",
    "ln_2": "feed_forward_residual.norm",
    "mlp.c_fc": "feed_forward.inner",
    "mlp.c_proj": "feed_forward.outer",
}
TRANSPOSED = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
TOGETHER = "attn.c_attn"  # query, key and value in one map
PARTS = ("query", "key", "value")
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
        activation = our_activation(config["activation_function"])
        inner = config.get("n_inner") or 4 * config["n_embd"]
        return [
            "objective=causal",
            "variant=multi_head",
            f"variant.scaled={str(config.get('scale_attn_weights', True)).lower()}",
            f"hidden_size={config['n_embd']}",
            f"layers={config['n_layer']}",
            f"heads={config['n_head']}",
            f"length={config['n_positions']}",
            "norm=pre",
            "model.norm_kind=layer",
            f"model.norm_epsilon={config['layer_norm_epsilon']}",
            "model.embedding_norm=false",
            "model.position=learned",
            f"model.intermediate_size={inner}",
            f"model.activation={activation}",
            "model.gated=false",
            "model.linear_bias=true",
            "model.token_types=0",
            "model.head_transform=false",
            f"model.tied={str(config.get('tie_word_embeddings', True)).lower()}",
            "model.head_bias=false",
            f"model.dropout={config['resid_pdrop']}",
            f"model.attention_dropout={config['attn_pdrop']}",
            f"model.initial_std={config['initializer_range']}",
        ]

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """A `config.json` for our model. Raises Mistake that names what GPT-2 doesn't have."""
        _check(settings)
        model = settings.model
        return {
            "model_type": self.model_type,
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": vocabulary_size,
            "n_positions": model.length,
            "n_embd": model.hidden_size,
            "n_layer": model.layers,
            "n_head": settings.heads,
            "n_inner": model.intermediate_size,
            "activation_function": THEIR_ACTIVATIONS[model.activation],
            "resid_pdrop": model.dropout,
            "embd_pdrop": model.dropout,
            "attn_pdrop": model.attention_dropout,
            "layer_norm_epsilon": model.norm_epsilon,
            "initializer_range": model.initial_std,
            "scale_attn_weights": settings.variant["scaled"],
            "tie_word_embeddings": model.tied,
        }

    def from_hugging_face(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict under our names; without an output embedding if it is the input's.

        Raises Mistake for an unknown name.
        """
        ours: dict[str, Tensor] = {}
        for published, tensor in state.items():
            name = f"transformer.{published}" if PUBLISHED.fullmatch(published) else published
            if IGNORED.fullmatch(name):
                continue
            module, _, parameter = name.rpartition(".")
            layer, inside = _layer_and_module(module)
            value = tensor.T if inside in TRANSPOSED and parameter == "weight" else tensor
            if inside == TOGETHER:
                parts = (f"encoder.layers.{layer}.attention.{part}.{parameter}" for part in PARTS)
                ours |= zip(parts, value.chunk(3), strict=True)
            elif layer is None and module in MODULES:
                ours[f"{MODULES[module]}.{parameter}"] = value
            elif inside in LAYER_MODULES:
                ours[f"encoder.layers.{layer}.{LAYER_MODULES[inside]}.{parameter}"] = value
            else:
                raise Mistake(f"{name} is not a weight of a GPT2LMHeadModel")
        output = ours.get("head.output.weight")
        if output is not None and torch.equal(output, ours["embedding.token.weight"]):
            del ours["head.output.weight"]
        return {name: tensor.contiguous() for name, tensor in ours.items()}

    def to_hugging_face(self, state: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
        """Our state dict under their names. Raises Mistake that names what GPT-2 doesn't have."""
        _check(settings)
        state = dict(state)
        theirs: dict[str, Tensor] = {}
        for layer in range(settings.layers):
            for parameter in ("weight", "bias"):
                parts = [state.pop(f"encoder.layers.{layer}.attention.{part}.{parameter}") for part in PARTS]
                together = torch.cat(parts)
                theirs[f"transformer.h.{layer}.{TOGETHER}.{parameter}"] = (
                    together.T if parameter == "weight" else together
                )
        named = {ours: name for name, ours in MODULES.items()}
        inner = {ours: name for name, ours in LAYER_MODULES.items()}
        for name, tensor in state.items():
            module, _, parameter = name.rpartition(".")
            if match := re.fullmatch(r"encoder\.layers\.(\d+)\.(.+)", module):
                inside = inner[match[2]]
                transposed = inside in TRANSPOSED and parameter == "weight"
                theirs[f"transformer.h.{match[1]}.{inside}.{parameter}"] = tensor.T if transposed else tensor
            else:
                theirs[f"{named[module]}.{parameter}"] = tensor
        theirs.setdefault("lm_head.weight", theirs["transformer.wte.weight"])
        return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _layer_and_module(module: str) -> tuple[str | None, str]:
    """("3", "attn.c_attn") for transformer.h.3.attn.c_attn; (None, "") for a name outside of the layers."""
    match = re.fullmatch(r"transformer\.h\.(\d+)\.(.+)", module)
    return (match[1], match[2]) if match else (None, "")


def _check(settings: Settings) -> None:
    sizes = dict.fromkeys(("key_size", "value_size"), head_size(settings))
    require("GPT-2", settings, FIXED | sizes | {"model.embedding_size": settings.hidden_size})
