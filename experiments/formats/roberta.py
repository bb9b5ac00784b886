"""RoBERTa (Liu et al. 2019, 1907.11692), as Hugging Face's `RobertaForMaskedLM` stores it: BERT under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from experiments.formats.bert import DEFAULTS, RENAMED, BertFormat
from experiments.formats.requirements import require, require_config
from experiments.settings.run import Settings

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
    renamed: ClassVar[dict[str, str]] = {
        HEAD.get(theirs, theirs.replace("bert.", "roberta.", 1)): ours for theirs, ours in RENAMED.items()
    }
    defaults: ClassVar[dict[str, Any]] = DEFAULTS | {"pad_token_id": 1}

    def first_position(self, config: Mapping[str, Any]) -> int:
        """The row after that of padding."""
        return int(config.get("pad_token_id", 1)) + 1

    def with_tokens(self, config: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
        """Positions are counted from padding's on, so their table is longer."""
        complete = super().with_tokens(config, tokens)
        return complete | {"max_position_embeddings": config["max_position_embeddings"] + self.first_position(complete)}

    def overrides(self, config: Mapping[str, Any]) -> list[str]:
        """The head's activation is GELU whatever that of the layers is."""
        require_config(config, {"hidden_act": "gelu"})
        return super().overrides(config)

    def config(self, settings: Settings, vocabulary_size: int) -> dict[str, Any]:
        """The config.json, in which positions are counted from the first token on."""
        require(self.proper_name, settings, {"model.activation": "gelu"})
        return super().config(settings, vocabulary_size)
