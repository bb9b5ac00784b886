"""DistilBERT (Sanh et al. 2019, 1910.01108), as Hugging Face's `DistilBertForMaskedLM` stores it."""

from __future__ import annotations

from typing import Any, ClassVar

from experiments.formats.bert import BertFormat

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
    renamed: ClassVar[dict[str, str]] = {
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
    same_numbers: ClassVar[dict[str, str]] = {
        "hidden_size": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "length": "max_position_embeddings",
        "model.intermediate_size": "hidden_dim",
        "model.dropout": "dropout",
        "model.attention_dropout": "attention_dropout",
        "model.initial_std": "initializer_range",
    }
    activation: ClassVar[str] = "activation"
    fixed: ClassVar[dict[str, Any]] = BertFormat.fixed | {"model.token_types": 0, "model.norm_epsilon": 1e-12}
    defaults: ClassVar[dict[str, Any]] = {
        "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "max_position_embeddings": 512, "dropout": 0.1,
        "attention_dropout": 0.1, "initializer_range": 0.02, "activation": "gelu", "tie_word_embeddings": True,
    }  # fmt: skip
