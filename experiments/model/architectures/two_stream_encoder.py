"""XLNet's two streams of attention (Yang et al. 2019, 1906.08237, 2.3) in BERT's layers, around any variant."""

# B batch, N length, D hidden size, E embedding size, V vocabulary, P positions to predict

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.failures.failure import Mistake
from experiments.model.architectures import encoder
from experiments.model.layers.batch_norm import refuse_batch_norms
from experiments.model.layers.local import refuse_local
from experiments.model.transformer import linear_multiplies
from experiments.settings.model import Model


class Architecture(encoder.Architecture):
    """Besides its content, each position has a query that knows its place but not its token, in the same layers.

    Both attend to the content. The content of i attends to that of j if order(j) <= order(i); the query of i does if
    order(j) < order(i). The query stream is appended to the content stream, so a layer computes both at once, with one
    attention map of 2N queries and N positions. Predictions are made from the queries.

    The model may have any kind of positions (XLNet's are Transformer-XL's). A query starts from a learned vector, to
    which the same positions are added as to an embedding, and is rotated or biased like the content of its place.

    Raises Mistake for a model without positions, whose queries would all be the same, for norms by batch, and for
    attention that itself depends on places in the sequence.
    """

    def __init__(self, model: Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__(model, variant, vocabulary_size)
        if model.position == "none":
            raise Mistake("model.position=none: a query must know its place; use rotary, relative, learned ...")
        refuse_local(model, "a two-stream encoder")
        refuse_batch_norms(model, "a two-stream encoder")
        if self.layers[0].attention.positional:
            raise Mistake(
                f"variant={variant['name']}: it attends by positions within one sequence, but a two-stream encoder "
                "joins two streams in one; use another objective than permutation"
            )
        self.query = nn.Embedding(1, model.embedding_size)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        order: Tensor | None = None,
        token_types: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits of the queries, [P, V] at `positions` of the flattened batch; without positions, [B, N, V].

        order: int64 [B, N], 0 for given tokens. None means that all tokens are given, as after pre-training; then only
        the content stream is computed.
        """
        if order is None:
            return super().forward(tokens, positions, token_types=token_types, mask=mask)
        B, N = tokens.shape
        content = self.embedding(tokens, token_types)
        query = self.embedding.place(self.query.weight.expand(B, N, -1), token_types)
        hidden = self.encoder(
            torch.cat([content, query], dim=1),
            None if positions is None else positions + (positions // N + 1) * N,
            memory_of=partial(torch.narrow, dim=1, start=0, length=N),
            mask=known(order) if mask is None else known(order) & mask[:, None, None, :],
            bias=None if self.relative is None else self.relative(N).repeat(1, 1, 2, 1),
            rotary=None if self.rotary is None else (self.turn_both, self.rotary),
        )
        return self.head(hidden if positions is not None else hidden[:, N:], self.embedding.token.weight)

    def remove_output_head(self) -> None:
        """Remove the head and the query stream's vector."""
        super().remove_output_head()
        del self.query

    def turn_both(self, heads: Tensor) -> Tensor:
        """Rotate heads [B, 2N, H, K], each stream by its positions."""
        assert self.rotary is not None
        return self.rotary(heads.unflatten(1, (2, -1)).flatten(0, 1)).view_as(heads)

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of both streams. In the last layer, the content needs no feed-forward, because nothing reads it."""
        attention = sum(layer.attention.cost(2 * length, length).multiplies for layer in self.layers) / length
        *body, last = (linear_multiplies(layer.feed_forward) for layer in self.layers)
        embedding = linear_multiplies(self.embedding.projection)
        head = linear_multiplies(self.head.transform) + self.embedding.token.weight.numel()
        return 6.0 * (2 * embedding + attention + 2 * sum(body) + predicted_share * (last + head))


def known(order_BN: Tensor) -> Tensor:
    """Where each content position, and then each query, may attend to: bool [B, 1, 2N, N]."""
    of, to = order_BN[:, None, :, None], order_BN[:, None, None, :]
    return torch.cat([to <= of, to < of], dim=2)
