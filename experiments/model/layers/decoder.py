"""The decoder of an encoder-decoder: layers that also attend to what the encoder made (Vaswani et al. 2017, 3.1)."""

# B batch, N decoder length, M encoder length, D hidden size, P positions to predict

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.model.layers.encoder import EncoderLayer
from experiments.model.layers.norm import Residual, build_norm, ends_with_norm
from experiments.settings.model import Model


class DecoderLayer(EncoderLayer):
    """Self-attention that looks back only, attention to the encoder's output, a feed-forward; each in its residual."""

    cross_attention: Any

    def __init__(self, model: Model, attention: nn.Module, cross_attention: nn.Module) -> None:
        super().__init__(model, attention)
        self.cross_attention = cross_attention
        self.cross_attention_residual = Residual(model)
        self.cross_dropout_seed = torch.zeros((), dtype=torch.int64, device="cpu")

    @property
    def dropout_seeds(self) -> list[Tensor]:
        """The seeds of both attentions' dropout, int64 without dimensions, to be filled in place."""
        return [self.dropout_seed, self.cross_dropout_seed]

    def forward(  # type: ignore[override]
        self,
        x_BND: Tensor,
        positions: Tensor | None = None,
        *,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: Callable[[Tensor], Tensor] | None = None,
        earlier: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """The stream [B, N, D], or [P, D] of `positions` of the flattened batch.

        memory [B, M, D]; memory_mask, bool [B, H, N, M] with each dimension full or 1, True = may attend. bias,
        rotary and earlier are of the self-attention: positions of the two sequences don't compare.
        """
        to_itself: dict[str, Any] = {"causal": True, "bias": bias, "rotary": rotary, "earlier": earlier}
        to_itself["dropout_seed"] = self.dropout_seed
        to_memory = {"memory": memory, "mask": memory_mask, "dropout_seed": self.cross_dropout_seed}
        x = self.attention_residual(x_BND, functools.partial(self.attention, **to_itself))
        x = self.cross_attention_residual(x, functools.partial(self.cross_attention, **to_memory))
        if positions is not None:
            x = x.flatten(0, 1).index_select(0, positions)
        return self.feed_forward_residual(x, self.feed_forward)


class Decoder(nn.Module):
    """The layers, and a final norm where the last layer does not end with one (norm=pre, sandwich)."""

    def __init__(self, model: Model, attentions: Sequence[tuple[nn.Module, nn.Module]]) -> None:
        """attentions: of each layer, to itself and to the encoder."""
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(model, *pair) for pair in attentions)
        self.norm = None if ends_with_norm(model.norm) else build_norm(model)

    def forward(self, x_BND: Tensor, positions: Tensor | None = None, **context: Any) -> Tensor:
        """The stream [B, N, D]; with positions [P, D]: what follows the last attention is computed for these alone."""
        context["earlier"] = {}
        *body, last = self.layers
        for layer in body:
            x_BND = layer(x_BND, **context)
        x = last(x_BND, positions, **context)
        return x if self.norm is None else self.norm(x)
