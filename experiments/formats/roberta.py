"""RoBERTa (Liu et al. 2019, 1907.11692), as Hugging Face's `RobertaForMaskedLM` stores it: BERT under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from experiments.formats.bert import BertFormat
from experiments.formats.keys import read

HEAD = {
    "cls.predictions.transform.dense": "lm_head.dense",
    "cls.predictions.transform.LayerNorm": "lm_head.layer_norm",
    "cls.predictions.decoder": "lm_head.decoder",
    "cls.predictions": "lm_head",
}


class RobertaFormat(BertFormat):
    """RoBERTa with its masked-token head. Its first token has the position after that of padding."""

    model_type: ClassVar[str] = "roberta"
    proper_name: ClassVar[str] = "RoBERTa"
    architecture: ClassVar[str] = "RobertaForMaskedLM"
    unused: ClassVar[str] = r"roberta\.pooler\..*|roberta\.embeddings\.position_ids"
    # the head's activation is GELU whatever that of the layers is
    fixed_settings: ClassVar[Mapping[str, Any]] = {**BertFormat.fixed_settings, "model.activation": "gelu"}
    fixed_keys: ClassVar[Mapping[str, Any]] = {**BertFormat.fixed_keys, "hidden_act": "gelu"}
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        HEAD.get(theirs, theirs.replace("bert.", "roberta.", 1)): ours for theirs, ours in BertFormat.modules.items()
    }

    def first_position(self, config: Mapping[str, Any]) -> int:
        """The row after that of padding."""
        padding: int = read(config, "pad_token_id", 1, least=0)
        return padding + 1

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """Positions are counted from padding's on, so their table is longer."""
        complete = super().with_tokens(config, tokens)
        return complete | {"max_position_embeddings": config["max_position_embeddings"] + self.first_position(complete)}
