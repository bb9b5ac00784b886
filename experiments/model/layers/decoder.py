"""The decoder of an encoder-decoder: layers that also attend to the encoder's output (Vaswani et al. 2017, 3.1)."""

# B batch, N decoder length, M encoder length, D hidden size, P positions to predict

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.model.layers.encoder import EncoderLayer, stack
from experiments.model.layers.norm import Residual, build_norm, ends_with_norm
from experiments.settings.model import Model


class DecoderLayer(EncoderLayer):
    """Causal self-attention, attention to the encoder's output and a feed-forward, each in a residual connection."""

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

    def last_maps(self) -> Iterator[nn.Linear]:
        """The last linear map of each residual branch."""
        yield from super().last_maps()
        yield self.cross_attention.output

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
        """The stream [B, N, D], or [P, D] at `positions` of the flattened batch.

        memory: [B, M, D]. memory_mask: bool [B, H, N, M] with each dimension full or 1, True = may attend. bias, rotary
        and earlier are for the self-attention only, because positions of the two sequences can't be compared.
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
    """The layers, and a final norm if the last layer does not end with one (norm=pre, sandwich)."""

    def __init__(self, model: Model, attentions: Sequence[tuple[nn.Module, nn.Module]]) -> None:
        """attentions: for each layer, its self-attention and its attention to the encoder."""
        super().__init__()
        self.layers = stack(model, (DecoderLayer(model, *pair) for pair in attentions))
        self.norm = None if ends_with_norm(model.norm) else build_norm(model)

    def forward(self, x_BND: Tensor, positions: Tensor | None = None, **context: Any) -> Tensor:
        """The stream [B, N, D]. With positions, it is [P, D], and only they are computed after the last attention."""
        context["earlier"] = {}
        *body, last = self.layers
        for layer in body:
            x_BND = layer(x_BND, **context)
        x = last(x_BND, positions, **context)
        return x if self.norm is None else self.norm(x)
