"""BERT with sizes of its own, as RoBERTa+ has them, computed by transformers' BERT: for a comparison with ours.

Transformers gives queries, keys and values one width. Zeros therefore fill up the narrower ones, and the queries take
up the square root of the factor by which the scale of the logits changes.
"""

# D hidden size, E embedding size, H heads, W width of a head there

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

MAPPING = "bert.encoder.embedding_hidden_mapping_in"
HEADS = re.compile(r".*\.(?:(query|key|value)\.(?:weight|bias)|attention\.output\.dense\.(weight))")


def bert_of_own_sizes(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> BertForMaskedLM:
    """Transformers' model with the weights of a checkpoint of bert4keras's keys, by transformers' names."""
    from transformers import BertConfig, BertForMaskedLM
    from transformers.models.bert.modeling_bert import BertEmbeddings, BertOnlyMLMHead

    D, heads = config["hidden_size"], config["num_attention_heads"]
    value_size = config.get("attention_head_size") or D // heads
    key_size, E = config.get("attention_key_size") or value_size, config.get("embedding_size") or D
    W = max(key_size, value_size)
    # with this key, the hidden size may be no multiple of the heads
    given = {key: value for key, value in config.items() if key != "model_type"} | {"embedding_size": E}
    model = BertForMaskedLM(BertConfig(**given))
    for layer in model.bert.encoder.layer:
        attention = layer.attention.self
        attention.attention_head_size, attention.all_head_size, attention.scaling = W, heads * W, W**-0.5
        attention.query, attention.key, attention.value = (nn.Linear(D, heads * W) for _ in range(3))
        layer.attention.output.dense = nn.Linear(heads * W, D)
    if E != D:
        narrow = BertConfig(**{**given, "hidden_size": E})
        model.bert.embeddings, model.cls = BertEmbeddings(narrow), BertOnlyMLMHead(narrow)
        model.cls.predictions.transform.dense = nn.Linear(D, E)
        embedding_map = nn.Linear(E, D)
        embedding_map.load_state_dict({name: state[f"{MAPPING}.{name}"] for name in ("weight", "bias")})
        model.bert.embeddings.register_forward_hook(lambda _module, _inputs, output: embedding_map(output))

    filled = {
        name: _filled(name, tensor, heads, W) * ((W / key_size) ** 0.5 if ".self.query." in name else 1)
        for name, tensor in state.items()
        if not name.startswith(MAPPING)
    }
    filled.setdefault("cls.predictions.decoder.weight", state["bert.embeddings.word_embeddings.weight"])
    filled.setdefault("cls.predictions.decoder.bias", state["cls.predictions.bias"])
    filled["cls.predictions.bias"] = filled["cls.predictions.decoder.bias"]
    model.load_state_dict(filled, strict=False)
    return model


def _filled(name: str, tensor: Tensor, heads: int, width: int) -> Tensor:
    """The tensor with heads of this width, whose further rows (of the output map: columns) are zero."""
    if not (match := HEADS.fullmatch(name)):
        return tensor
    place = 0 if match[1] else 1
    of_heads = tensor.unflatten(place, (heads, -1)).movedim(place + 1, -1)
    return nn.functional.pad(of_heads, (0, width - of_heads.shape[-1])).movedim(-1, place + 1).flatten(place, place + 1)
