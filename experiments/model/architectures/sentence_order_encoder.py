"""ALBERT's pre-training model (Lan et al. 2020, 1909.11942): BERT with a head for the order of two segments."""

# B batch, N length, D hidden size, V vocabulary, P positions to predict

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.model.architectures import encoder
from experiments.model.transformer import linear_multiplies
from experiments.settings.model import Model


class Architecture(encoder.Architecture):
    """BERT with a second head on [CLS]."""

    def __init__(self, model: Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__(model, variant, vocabulary_size)
        self.order = OrderHead(model.hidden_size)

    def forward(  # type: ignore[override]
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        token_types: Tensor | None = None,
        mask: Tensor | None = None,
        classes: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits as from BERT. Token types are ignored if the model has fewer than two of them.

        With `classes`, which needs `positions`, also logits [B, 2] for segments in order and segments swapped.
        """
        if self.embedding.token_type is None or self.embedding.token_type.num_embeddings < 2:
            token_types = None
        if not classes:
            return super().forward(tokens, positions, token_types=token_types, mask=mask)
        assert positions is not None
        firsts = torch.arange(len(tokens), device=tokens.device) * tokens.size(1)
        hidden = self.encode(tokens, torch.cat([positions, firsts]), token_types=token_types, mask=mask)
        predicted, first = hidden.tensor_split([len(positions)])
        return self.head(predicted, self.embedding.token.weight), self.order(first)

    def remove_output_head(self) -> None:
        """Remove both heads."""
        super().remove_output_head()
        del self.order

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of BERT, plus one position per sequence in the last feed-forward and in the head for its class."""
        last = 0 if self.encoder.picks_last else linear_multiplies(self.layers[-1].feed_forward)
        return super().flops_per_token(length, predicted_share) + 6.0 * (last + linear_multiplies(self.order)) / length


class OrderHead(nn.Module):
    """Two logits at the first position, [CLS]: output(tanh(dense(x)))."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, 2)

    def forward(self, x_BD: Tensor) -> Tensor:
        """x [B, D] -> logits [B, 2]"""
        return self.output(torch.tanh(self.dense(x_BD)))
