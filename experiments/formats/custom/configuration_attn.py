"""The configuration of a model that `attn export --format transformers-custom` wrote."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig


class AttnConfig(PreTrainedConfig):
    """What the model is built of: its architecture, and the groups `model` and `variant` of its settings."""

    model_type = "attn"

    def __init__(
        self,
        architecture: str = "encoder",
        model: dict[str, Any] | None = None,
        variant: dict[str, Any] | None = None,
        vocab_size: int = 0,
        **others: Any,
    ) -> None:
        self.architecture, self.model, self.variant = architecture, model or {}, variant or {}
        self.vocab_size = vocab_size
        # tied weights are one tensor in the model itself
        super().__init__(**{**others, "tie_word_embeddings": False})
