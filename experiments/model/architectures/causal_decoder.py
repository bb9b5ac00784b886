"""A decoder without an encoder, as GPT-2 (Radford et al. 2019) or, with segments, as Transformer-XL."""

# B batch, N length, S segments of L tokens, D hidden size, P positions to predict

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.failures.failure import Mistake
from experiments.model.architectures import encoder
from experiments.model.layers.segments import cut, joined, seen, with_previous
from experiments.settings.model import Model


class Architecture(encoder.Architecture):
    """BERT's layers with causal attention: no position attends to a later one.

    norm=pre, position=learned, activation=gelu_tanh, embedding_norm=false and head_bias=false make it GPT-2.

    With `model.segment_length` a sequence consists of S segments of L tokens. In layer n (Dai et al. 2019, 1901.02860,
    3.2)

        memory of segment s = [SG(h_(s-1)^(n-1)), h_s^(n-1)]        h_s^n = layer(queries of h_s^(n-1), that memory)

    SG stops the gradient. All of h^(n-1) exists before layer n runs, so the segments are put along the batch dimension.
    A layer computes them at once, with the same result as one after the other. h is the input of the attention; with
    norm=pre it is already normalized. The first segment of a sequence has no memory.

    Raises Mistake if segments are used with attention that itself depends on places in the sequence.
    """

    causal: ClassVar[bool] = True

    def __init__(self, model: Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__(model, variant, vocabulary_size)
        self.segment_length = model.segment_length
        if self.segment_length is not None and self.layers[0].attention.positional:
            raise Mistake(
                f"variant={variant['name']}: it attends by positions within one sequence, but with "
                f"model.segment_length={self.segment_length} a segment also attends to the one before; set null"
            )

    def encode(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        token_types: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Encode like an encoder. A sequence that ends within a segment is padded, and the padding masked."""
        length = tokens.size(1)
        L = length if self.segment_length is None else self.segment_length
        if length <= L:
            return super().encode(tokens, positions, token_types=token_types, mask=mask)
        segments, missing = -(-length // L), -length % L
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        hidden: Tensor = self.encoder(
            cut(F.pad(self.embedding(tokens, token_types), (0, 0, 0, missing)), L),
            None if positions is None else positions + positions // length * missing,
            memory_of=partial(with_previous, segments=segments),
            mask=seen(cut(F.pad(real, (0, missing)), L), segments),
            bias=None if self.relative is None else self.relative(2 * L)[:, :, L:],
            rotary=None if self.rotary is None else (partial(self.rotary, first=L), self.rotary),
        )
        return hidden if positions is not None else joined(hidden, segments)[:, :length]

    def map_size(self, length: int) -> tuple[int, int]:
        """The numbers of queries and memory positions; with segments, each attends to itself and the one before."""
        L = self.segment_length
        return super().map_size(length) if L is None or length <= L else (L, 2 * L)
