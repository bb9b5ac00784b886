"""An encoder and a decoder that attends to it; the settings make it the Transformer (1706.03762) or T5 (1910.10683)."""

# B batch, N encoder length, M decoder length, D hidden size, V vocabulary, P positions to predict

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from experiments.failures.failure import Mistake
from experiments.model.layers.batch_norm import refuse_batch_norms
from experiments.model.layers.build_attention import build_attention
from experiments.model.layers.decoder import Decoder, DecoderLayer
from experiments.model.layers.embedding import Embedding
from experiments.model.layers.encoder import Encoder, EncoderLayer
from experiments.model.layers.local import refuse_local
from experiments.model.layers.output_head import OutputHead
from experiments.model.layers.position import position_bias, rotation
from experiments.model.transformer import Transformer, linear_multiplies
from experiments.settings.model import Model


class Architecture(Transformer):
    """`model.layers` layers on each side, one embedding for both, and the attention variant in all three attentions.

    Both sides share one table of learned positions. Each side has its own table of relative positions, as in T5: for
    both directions in the encoder, for one in the decoder, and none in the cross-attention.

    Raises Mistake for a model with token types, with shared layers, with an embedding size other than the hidden size,
    with norm=deep, or with norms by batch.
    """

    def __init__(self, model: Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__()
        if model.token_types:
            raise Mistake(f"model.token_types={model.token_types}: an encoder-decoder has none; set 0")
        if model.sharing != "none" or model.embedding_size != model.hidden_size:
            raise Mistake(
                f"model.sharing={model.sharing}, model.embedding_size={model.embedding_size}: an encoder-decoder "
                f"shares nothing between layers and embeds at hidden_size; set none and {model.hidden_size}"
            )
        refuse_local(model, "an encoder-decoder")
        refuse_batch_norms(model, "an encoder-decoder")
        if model.norm == "deep":
            raise Mistake("norm=deep: its constants are for an encoder or a decoder alone; use post or pre")
        self.length = model.length  # longest sequence of either side
        self_attentions = [build_attention(variant) for _ in range(2 * model.layers)]
        cross_attentions = [build_attention(variant) for _ in range(model.layers)]
        self.embedding = Embedding(model, vocabulary_size)
        self.rotary = rotation(model)
        self.encoder_relative = position_bias(model, self_attentions[0].softmax_heads)
        self.decoder_relative = position_bias(model, self_attentions[0].softmax_heads, causal=True)
        self.encoder = Encoder(model, self_attentions[: model.layers])
        self.decoder = Decoder(model, list(zip(self_attentions[model.layers :], cross_attentions, strict=True)))
        self.head = OutputHead(model, vocabulary_size)

    def forward(
        self, tokens: Tensor, decoder_tokens: Tensor, positions: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Logits [P, V] at the decoder's `positions`, int64 [P] into its flattened batch; None: [B, M, V] at all.

        tokens: int64 [B, N]. decoder_tokens: int64 [B, M], the targets shifted by one, so that each predicts the next.
        Padding comes last, so no real position attends to it. mask: bool [B, N], True = a real token; None (faster)
        means that all are real.
        """
        return self.decode(decoder_tokens, self.encode(tokens, mask), positions, mask=mask)

    def encode(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encode tokens [B, N] into the memory [B, N, D] of the decoder."""
        return self.encoder(
            self.embedding(tokens),
            mask=None if mask is None else mask[:, None, None, :],
            bias=None if self.encoder_relative is None else self.encoder_relative(tokens.size(1)),
            rotary=self.rotary,
        )

    def decode(
        self, decoder_tokens: Tensor, memory: Tensor, positions: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Logits as from `forward`, given the memory [B, N, D] and its mask [B, N]."""
        hidden = self.decoder(
            self.embedding(decoder_tokens),
            positions,
            memory=memory,
            memory_mask=None if mask is None else mask[:, None, None, :],
            bias=None if self.decoder_relative is None else self.decoder_relative(decoder_tokens.size(1)),
            rotary=self.rotary,
        )
        return self.head(hidden, self.embedding.token.weight)

    @property
    def layers(self) -> list[EncoderLayer]:
        """The layers of the encoder, then those of the decoder."""
        return [layer for stack in self.stacks for layer in stack]

    @property
    def stacks(self) -> list[list[EncoderLayer]]:
        """The layers of the encoder, and those of the decoder."""
        return [cast("list[EncoderLayer]", list(side.layers)) for side in (self.encoder, self.decoder)]

    @property
    def attentions(self) -> list[Any]:
        """The self-attention of every layer, then the cross-attention of the decoder's layers."""
        return super().attentions + [layer.cross_attention for layer in self._decoder_layers]

    @property
    def _decoder_layers(self) -> list[DecoderLayer]:
        return cast("list[DecoderLayer]", list(self.decoder.layers))

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of training per token of both sides: `length` in the encoder, and the predicted ones in the decoder."""
        targets = round(length * predicted_share / (1 - predicted_share))
        multiplies = targets * (linear_multiplies(self.head.transform) + self.embedding.token.weight.numel())
        for layer in cast("list[EncoderLayer]", list(self.encoder.layers)):
            multiplies += layer.attention.cost(length, length).multiplies
            multiplies += length * linear_multiplies(layer.feed_forward)
        for layer in self._decoder_layers:
            multiplies += layer.attention.cost(targets, targets).multiplies
            multiplies += layer.cross_attention.cost(targets, length).multiplies
            multiplies += targets * linear_multiplies(layer.feed_forward)
        return 6.0 * multiplies / (length + targets)
