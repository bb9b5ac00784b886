"""DistilBERT (Sanh et al. 2019, 1910.01108), as Hugging Face's `DistilBertForMaskedLM` stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from experiments.formats.bert import BertFormat
from experiments.settings.run import Settings

SUBLAYERS = {
    "attention.q_lin": "attention.query",
    "attention.k_lin": "attention.key",
    "attention.v_lin": "attention.value",
    "attention.out_lin": "attention.output",
    "sa_layer_norm": "attention_residual.norm",
    "ffn.lin1": "feed_forward.inner",
    "ffn.lin2": "feed_forward.outer",
    "output_layer_norm": "feed_forward_residual.norm",
}


class DistilBertFormat(BertFormat):
    """BERT without token types, under other names."""

    model_type: ClassVar[str] = "distilbert"
    proper_name: ClassVar[str] = "DistilBERT"
    architecture: ClassVar[str] = "DistilBertForMaskedLM"
    unused: ClassVar[str] = r"distilbert\.embeddings\.position_ids"
    fixed_settings: ClassVar[Mapping[str, Any]] = {
        **BertFormat.fixed_settings,
        "model.token_types": 0,
        "model.norm_epsilon": 1e-12,
    }
    fixed_keys: ClassVar[Mapping[str, Any]] = {"sinusoidal_pos_embds": False}
    same_values: ClassVar[Mapping[str, tuple[str, Any]]] = {
        "hidden_size": ("dim", 768),
        "layers": ("n_layers", 6),
        "heads": ("n_heads", int),
        "length": ("max_position_embeddings", 512),
        "model.intermediate_size": ("hidden_dim", 3072),
        "model.dropout": ("dropout", 0.1),
        "model.attention_dropout": ("attention_dropout", 0.1),
        "model.initial_std": ("initializer_range", 0.02),
        "model.tied": ("tie_word_embeddings", True),
    }
    activation: ClassVar[str] = "activation"
    modules: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "distilbert.embeddings.word_embeddings": "embedding.token",
        "distilbert.embeddings.position_embeddings": "embedding.position",
        "distilbert.embeddings.LayerNorm": "embedding.norm",
        **{
            f"distilbert.transformer.layer.N.{theirs}": f"encoder.layers.N.{ours}" for theirs, ours in SUBLAYERS.items()
        },
        "vocab_transform": "head.transform.dense",
        "vocab_layer_norm": "head.transform.norm",
        "vocab_projector": "head.output",
    }

    def needs(self, settings: Settings) -> dict[str, Any]:
        """Heads of any size, and embeddings as wide as the layers."""
        return super().needs(settings) | {"model.embedding_size": settings.hidden_size}
