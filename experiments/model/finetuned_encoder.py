"""A pretrained model with a new head that predicts where an answer begins and ends, or a label, or a number."""

# B batch, N length, D hidden size, P targets, C labels (1 for a number)

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from experiments.model.architectures import encoder
from experiments.model.layers.encoder import EncoderLayer
from experiments.model.transformer import Transformer, linear_multiplies
from experiments.settings.model import Model


class FinetunedEncoder(Transformer):
    """The pretrained layers `body` without their head, and a new head. outputs: number of labels; None for a span."""

    def __init__(self, body: encoder.Architecture, model: Model, outputs: int | None) -> None:
        super().__init__()
        body.remove_output_head()
        self.body = body
        self.head: SpanHead | LabelHead = SpanHead(model) if outputs is None else LabelHead(model, outputs)

    def forward(
        self, tokens: Tensor, positions: Tensor, *, mask: Tensor | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        """Logits [P, C], or [P, N] for a span. positions: int64 [P] into the flattened [B, N].

        For a label they hold one position of each sequence: its first, or its last if the attention is causal. For a
        span they hold the first position, whose logits say where the answer begins, and the second, where it ends.
        """
        if isinstance(self.head, LabelHead):
            return self.head(self.body.encode(tokens, positions, mask=mask, token_types=token_types))
        hidden_BND = self.body.encode(tokens, None, mask=mask, token_types=token_types)
        logits_BN2 = self.head(hidden_BND, mask)
        length = tokens.size(1)
        return logits_BN2[positions // length, :, positions % length]

    @property
    def layers(self) -> Sequence[EncoderLayer]:
        """The layers of the pretrained body."""
        return self.body.layers

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of the body without its own head, plus those of the new head."""
        return self.body.encoder_flops_per_token(length, predicted_share) + 6.0 * predicted_share * linear_multiplies(
            self.head
        )


class SpanHead(nn.Module):
    """Two logits for each token (Devlin et al. 2019, 1810.04805, 4.2)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dropout = nn.Dropout(model.dropout)
        self.output = nn.Linear(model.hidden_size, 2)

    def forward(self, hidden_BND: Tensor, mask_BN: Tensor | None) -> Tensor:
        """Logits [B, N, 2]. Those of padding are finite but so low that padding gets no probability."""
        logits_BN2: Tensor = self.output(self.dropout(hidden_BND))
        if mask_BN is None:
            return logits_BN2
        return logits_BN2.masked_fill(~mask_BN[:, :, None], torch.finfo(logits_BN2.dtype).min)


class LabelHead(nn.Module):
    """A dense layer, tanh, dropout and an output layer on [CLS], like BERT's pooler and classifier."""

    def __init__(self, model: Model, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.hidden_size)
        self.dropout = nn.Dropout(model.dropout)
        self.output = nn.Linear(model.hidden_size, outputs)

    def forward(self, hidden_PD: Tensor) -> Tensor:
        """hidden [P, D] -> logits [P, C]"""
        return self.output(self.dropout(self.dense(hidden_PD).tanh()))
