"""BERT: an encoder that predicts masked tokens (Devlin et al. 2019, 1810.04805), around any attention variant."""

# B batch, N length, D hidden size, E embedding size, V vocabulary, P positions to predict

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.failures.failure import Mistake
from experiments.model.layers.batch_norm import tell_real
from experiments.model.layers.build_attention import build_attention
from experiments.model.layers.embedding import Embedding
from experiments.model.layers.encoder import Encoder, EncoderLayer
from experiments.model.layers.feed_forward import ACTIVATIONS
from experiments.model.layers.norm import build_norm
from experiments.model.layers.position import position_bias, rotation
from experiments.model.transformer import Transformer, linear_multiplies
from experiments.settings.model import Model


class Architecture(Transformer):
    """An encoder with the head for masked tokens, whose settings choose its norms and positions."""

    def __init__(self, model: Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__(model, variant, vocabulary_size)
        if model.output_scaled:
            raise Mistake(
                "model.output_scaled=true: only an encoder-decoder (objective=span_corruption) has it; set false"
            )
        attentions = [build_attention(variant) for _ in range(model.layers)]
        self.embedding = Embedding(model, vocabulary_size)
        self.rotary = rotation(model)
        self.relative = position_bias(model, attentions[0].softmax_heads, self.causal)
        self.encoder = Encoder(model, attentions)
        self.head = MaskedHead(model, vocabulary_size)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        token_types: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits [P, V] at `positions`, int64 [P] into the flattened batch; without positions, [B, N, V] at all.

        tokens: int64 [B, N]. token_types: int64 [B, N]; None means all 0. mask: bool [B, N], True = a real token; None
        (faster) means that all are real.

        Raises Mistake for token types without a table for them, and for more tokens than the position table has rows.
        """
        hidden = self.encode(tokens, positions, token_types=token_types, mask=mask)
        return self.head(hidden, self.embedding.token.weight)

    def encode(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        token_types: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The input of the head, [P, D] or [B, N, D]. Arguments and errors are those of `forward`."""
        tell_real(self, mask)
        return self.encoder(
            self.embedding(tokens, token_types),
            positions,
            mask=None if mask is None else mask[:, None, None, :],
            bias=None if self.relative is None else self.relative(tokens.size(1)),
            causal=self.causal,
            rotary=self.rotary,
        )

    def remove_output_head(self) -> None:
        """Remove the head, which only pretraining needs; `encode` does without it."""
        del self.head

    @property
    def layers(self) -> list[EncoderLayer]:
        """The layers of the encoder."""
        return cast("list[EncoderLayer]", list(self.encoder.layers))

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of training per token: those of the encoder, plus those of the head at the predicted positions."""
        head = linear_multiplies(self.head.transform) + self.embedding.token.weight.numel()
        return self.encoder_flops_per_token(length, predicted_share) + 6.0 * predicted_share * head

    def encoder_flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of training per token without the head."""
        queries, memory = self.map_size(length)
        attention = sum(layer.attention.cost(queries, memory).multiplies for layer in self.layers) / queries
        *body, last = (linear_multiplies(layer.feed_forward) for layer in self.layers)
        predicted_last = 1.0 if self.encoder.picks_last else predicted_share
        embedding = linear_multiplies(self.embedding.projection)
        return 6.0 * (embedding + attention + sum(body) + predicted_last * last)

    def map_size(self, length: int) -> tuple[int, int]:
        """The numbers of queries and memory positions of an attention map, for sequences of this length."""
        return length, length


class MaskedHead(nn.Module):
    """Logits by the output embedding, which is the input embedding if tied. The settings can add BERT's transform.

    If the embedding size E differs from D, the transform maps D to E, or a linear map does if there is no transform.
    """

    def __init__(self, model: Model, vocabulary_size: int) -> None:
        super().__init__()
        self.transform: nn.Module = nn.Identity()
        if model.head_transform:
            self.transform = Transform(model)
        elif model.embedding_size != model.hidden_size:
            self.transform = nn.Linear(model.hidden_size, model.embedding_size)
        self.output = None if model.tied else nn.Linear(model.embedding_size, vocabulary_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if model.head_bias else None

    def reset_parameters(self) -> None:
        """Start with a bias of 0, which prefers no token."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, embedding_VE: Tensor) -> Tensor:
        """hidden [..., D] -> logits [..., V]."""
        weight_VE = embedding_VE if self.output is None else self.output.weight
        return F.linear(self.transform(hidden), weight_VE, self.bias)


class Transform(nn.Module):
    """norm(activation(dense(x))), from D to E, between BERT's encoder and its output embedding."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.embedding_size)
        self.activation = ACTIVATIONS[model.activation]
        self.norm = build_norm(model, model.embedding_size)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., E]"""
        return self.norm(self.activation(self.dense(x)))
