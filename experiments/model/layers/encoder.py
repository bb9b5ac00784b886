"""The encoder: layers of self-attention and feed-forward (Vaswani et al. 2017, 1706.03762, 3.1)."""

# B batch, N length, D hidden size, P positions to predict

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.model.layers.feed_forward import FeedForward
from experiments.model.layers.local import Local
from experiments.model.layers.norm import Residual, build_norm, ends_with_norm
from experiments.settings.model import Model


class EncoderLayer(nn.Module):
    """Self-attention of any variant, then a feed-forward, each in a residual connection."""

    attention: Any
    feed_forward: FeedForward

    def __init__(self, model: Model, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = Residual(model)
        self.feed_forward = FeedForward(model)
        self.feed_forward_residual = Residual(model)
        # it belongs to the layer, because other layers may share its attention; no buffer, because it stays on the CPU
        self.dropout_seed = torch.zeros((), dtype=torch.int64, device="cpu")

    @property
    def dropout_seeds(self) -> list[Tensor]:
        """The seeds of the layer's attention dropout, int64 without dimensions, to be filled in place."""
        return [self.dropout_seed]

    def forward(
        self,
        x_BND: Tensor,
        positions: Tensor | None = None,
        *,
        memory_of: Callable[[Tensor], Tensor] | None = None,
        **context: Any,
    ) -> Tensor:
        """The stream [B, N, D], or [P, D] at `positions` of the flattened batch.

        memory_of: computes the memory [B, M, D] from the input of the attention [B, N, D]; None: it is that input.
        context: keywords of the attention.
        """

        def attention(x: Tensor) -> Tensor:
            memory = None if memory_of is None else memory_of(x)
            output: Tensor = self.attention(x, memory, dropout_seed=self.dropout_seed, **context)
            return output

        x = self.attention_residual(x_BND, attention)
        if positions is not None:
            x = x.flatten(0, 1).index_select(0, positions)
        return self.feed_forward_residual(x, self.feed_forward)

    def branches(self) -> Iterator[list[nn.Linear]]:
        """The linear maps on each residual branch: value and output, inner and outer of the feed-forward.

        A mechanism whose values are the memory itself has no map of values.
        """
        yield [each for name, each in self.attention.named_children() if name in ("value", "output")]
        yield [self.feed_forward.inner, self.feed_forward.outer]

    def last_maps(self) -> Iterator[nn.Linear]:
        """The last linear map of each residual branch."""
        yield from (self.attention.output, self.feed_forward.outer)


def stack(model: Model, layers: Iterable[EncoderLayer]) -> nn.ModuleList:
    """The layers, the first without a norm before its self-attention if not `model.first_norm`."""
    first, *others = layers
    if not model.first_norm:
        first.attention_residual.norm = nn.Identity()
    return nn.ModuleList([first, *others])


# what layers share with the first layer: sub-layers, with the norms of their residual connections
SHARED: dict[str, tuple[str, ...]] = {
    "none": (),
    "attention": ("attention", "attention_residual"),
    "feed_forward": ("feed_forward", "feed_forward_residual"),
    "all": ("attention", "attention_residual", "feed_forward", "feed_forward_residual"),
}


class Encoder(nn.Module):
    """The layers, and a final norm if the last layer does not end with one (norm=pre, sandwich).

    model.sharing: the sub-layers that are the same modules in every layer (Lan et al. 2020, 1909.11942, 3.1).

    With batch statistics every position is computed, and `positions` are selected at the end, because the predicted
    positions are not a fair sample of the text.
    """

    def __init__(self, model: Model, attentions: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = stack(model, (EncoderLayer(model, attention) for attention in attentions))
        first, *others = self.layers
        for layer in others:
            for name in SHARED[model.sharing]:
                delattr(layer, name)
                # referenced but not registered again, so that every tensor has one name, that of the first layer
                layer.__dict__[name] = getattr(first, name)
        self.local = Local(model)
        self.norm = None if ends_with_norm(model.norm) else build_norm(model)
        self.picks_last = model.norms_by_batch

    def forward(self, x_BND: Tensor, positions: Tensor | None = None, **context: Any) -> Tensor:
        """The stream [B, N, D]. With positions, it is [P, D], and only they are computed after the last attention."""
        context["earlier"] = {}
        *body, last = self.layers
        for number, layer in enumerate(body):
            x_BND = layer(x_BND, **self.local.context(number, x_BND, context))
        picked = None if self.picks_last else positions
        x = last(x_BND, picked, **self.local.context(len(body), x_BND, context))
        x = x if self.norm is None else self.norm(x)
        return x.flatten(0, 1).index_select(0, positions) if self.picks_last and positions is not None else x
