"""Weights of a Hugging Face `BertForMaskedLM` for our `Bert` with multi-head attention.

The settings that make our model that BERT: norm=post, norm_kind=layer, norm_epsilon=1e-12, position=learned,
activation=gelu, linear_bias=true, token_types=2, head_transform=true, tied=true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

LAYER = r"bert\.encoder\.layer\.(\d+)"
RENAMED = {
    r"bert\.embeddings\.word_embeddings": "embedding.token",
    r"bert\.embeddings\.position_embeddings": "embedding.position",
    r"bert\.embeddings\.token_type_embeddings": "embedding.token_type",
    r"bert\.embeddings\.LayerNorm": "embedding.norm",
    rf"{LAYER}\.attention\.self\.(query|key|value)": r"encoder.layers.\1.attention.\2",
    rf"{LAYER}\.attention\.output\.dense": r"encoder.layers.\1.attention.output",
    rf"{LAYER}\.attention\.output\.LayerNorm": r"encoder.layers.\1.attention_residual.norm",
    rf"{LAYER}\.intermediate\.dense": r"encoder.layers.\1.feed_forward.inner",
    rf"{LAYER}\.output\.dense": r"encoder.layers.\1.feed_forward.outer",
    rf"{LAYER}\.output\.LayerNorm": r"encoder.layers.\1.feed_forward_residual.norm",
    r"cls\.predictions\.transform\.dense": "head.transform.dense",
    r"cls\.predictions\.transform\.LayerNorm": "head.transform.norm",
    r"cls\.predictions\.decoder": "head.output",
    r"cls\.predictions": "head",
}


def from_hugging_face(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict, with the same tensors, of a `BertForMaskedLM`; without an output embedding if it is the input's.

    ValueError: a name that such a model does not have.
    """
    ours = {renamed(name): tensor for name, tensor in state_dict.items()}
    # the bias is stored twice, and the decoder's is the one that is added
    ours["head.bias"] = ours.pop("head.output.bias", ours["head.bias"])
    output = ours.get("head.output.weight")
    if output is not None and torch.equal(output, ours["embedding.token.weight"]):
        del ours["head.output.weight"]
    return ours


def renamed(name: str) -> str:
    module, _, parameter = name.rpartition(".")
    for pattern, replacement in RENAMED.items():
        if match := re.fullmatch(pattern, module):
            return f"{match.expand(replacement)}.{parameter}"
    raise ValueError(f"{name} is no weight of a BertForMaskedLM")
