"""Peers: models of other libraries at the sizes of a configuration, as functions tokens, labels -> loss.

Labels are -100 at positions without a prediction. Each library is used as its documentation describes.
"""

# B batch, N length, D hidden size, V vocabulary

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import install_line
from experiments.settings.run import Settings


class HuggingFace(nn.Module):
    """BertForMaskedLM of transformers, with its default attention, torch's own kernel (sdpa)."""

    def __init__(self, settings: Settings, vocabulary_size: int) -> None:
        super().__init__()
        transformers, model = _imported("transformers"), settings.model
        configuration = transformers.BertConfig(
            vocab_size=vocabulary_size,
            hidden_size=model.hidden_size,
            num_hidden_layers=model.layers,
            num_attention_heads=settings.heads,
            intermediate_size=model.intermediate_size,
            max_position_embeddings=model.length,
            hidden_dropout_prob=model.dropout,
            attention_probs_dropout_prob=model.attention_dropout,
            attn_implementation="sdpa",
        )
        self.model = transformers.BertForMaskedLM(configuration)

    def forward(self, tokens_BN: Tensor, labels_BN: Tensor) -> Tensor:
        """The loss of a batch, a scalar in nats."""
        return self.model(input_ids=tokens_BN, labels=labels_BN).loss


class XTransformers(nn.Module):
    """The encoder of x-transformers with talking heads before and after the softmax, and a tied output embedding."""

    def __init__(self, settings: Settings, vocabulary_size: int) -> None:
        super().__init__()
        library, model = _imported("x_transformers"), settings.model
        encoder = library.Encoder(
            dim=model.hidden_size,
            depth=model.layers,
            heads=settings.heads,
            attn_dim_head=settings.key_size,
            attn_pre_talking_heads=True,
            attn_post_talking_heads=True,
            attn_dropout=model.attention_dropout,
            ff_mult=model.intermediate_size / model.hidden_size,
            ff_dropout=model.dropout,
            pre_norm=settings.norm != "post",
            rotary_pos_emb=model.position == "rotary",
        )
        self.model = library.TransformerWrapper(
            num_tokens=vocabulary_size,
            max_seq_len=model.length,
            attn_layers=encoder,
            tie_embedding=True,
            use_abs_pos_emb=model.position != "rotary",
        )

    def forward(self, tokens_BN: Tensor, labels_BN: Tensor) -> Tensor:
        """The loss of a batch, a scalar in nats."""
        return masked_loss(self.model(tokens_BN), labels_BN)


class Torch(nn.Module):
    """torch's nn.TransformerEncoder with learned positions and a tied output embedding."""

    def __init__(self, settings: Settings, vocabulary_size: int) -> None:
        super().__init__()
        model = settings.model
        layer = nn.TransformerEncoderLayer(
            model.hidden_size,
            settings.heads,
            model.intermediate_size,
            model.dropout,
            activation="gelu",
            batch_first=True,
            norm_first=settings.norm != "post",
        )
        self.token = nn.Embedding(vocabulary_size, model.hidden_size)
        self.position = nn.Embedding(model.length, model.hidden_size)
        self.encoder = nn.TransformerEncoder(layer, model.layers, enable_nested_tensor=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, tokens_BN: Tensor, labels_BN: Tensor) -> Tensor:
        """The loss of a batch, a scalar in nats."""
        hidden_BND = self.encoder(self.token(tokens_BN) + self.position.weight[: tokens_BN.size(1)])
        return masked_loss(F.linear(hidden_BND, self.token.weight, self.bias), labels_BN)


PEERS: dict[str, Callable[[Settings, int], nn.Module]] = {
    "hugging_face": HuggingFace,
    "x_transformers": XTransformers,
    "torch": Torch,
}


def masked_loss(logits_BNV: Tensor, labels_BN: Tensor) -> Tensor:
    """Mean negative log likelihood, in nats, over the positions with labels."""
    return F.cross_entropy(logits_BNV.flatten(0, 1).float(), labels_BN.flatten(), ignore_index=-100)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Mistake(f"--peers: {name} can't be imported: {error}", install_line("peers")) from error
