"""BERT: an encoder that predicts masked tokens (Devlin et al. 2019, 1810.04805), around any attention variant."""

# B batch, N length, D hidden size, E embedding size, V vocabulary, P positions to predict

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from experiments.model.layers.batch_norm import tell_real
from experiments.model.layers.build_attention import build_attention
from experiments.model.layers.embedding import Embedding
from experiments.model.layers.encoder import Encoder, EncoderLayer
from experiments.model.layers.output_head import OutputHead
from experiments.model.layers.position import position_bias, rotation
from experiments.model.transformer import Transformer, linear_multiplies
from experiments.settings.model import Model


class Architecture(Transformer):
    """An encoder with the head for masked tokens, whose settings choose its norms and positions."""

    def __init__(self, model: Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__()
        attentions = [build_attention(variant) for _ in range(model.layers)]
        self.embedding = Embedding(model, vocabulary_size)
        self.rotary = rotation(model)
        self.relative = position_bias(model, attentions[0].softmax_heads, self.causal)
        self.encoder = Encoder(model, attentions)
        self.head = OutputHead(model, vocabulary_size)

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
