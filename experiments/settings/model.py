"""The layers around the attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from experiments.failures.unread import Idle
from experiments.settings.group import LARGEST_SIZE, Depth, Fraction, Group, Positive, Size
from experiments.settings.norm import NORM_KINDS
from experiments.settings.position import POSITION_KINDS

Norm = Literal["post", "pre", "sandwich", "deep"]
if TYPE_CHECKING:
    NormName = str
    PositionName = str
else:
    NormName = Literal[tuple(NORM_KINDS)]
    PositionName = Literal[tuple(POSITION_KINDS)]
# of a model and its variant: with other values it is still the same model
RUNTIME_KEYS = frozenset({"length", "dropout", "attention_dropout", "backend"})


class Model(Group):
    """The layers around the attention; sizes in features, lengths in tokens."""

    hidden_size: Size  # width of the residual stream
    intermediate_size: Size  # inner width of the feed-forward
    embedding_size: Size  # width of the embeddings; if not hidden_size, linear maps connect both
    layers: Depth  # depth of the model
    sharing: Literal["none", "attention", "feed_forward", "all"]  # sub-layers that are the same in all layers
    length: Size  # longest sequence; the size of a learned position table
    norm: Norm  # where norms stand: after a sub-layer, before it, on both sides, or after it with a scaled residual
    norm_kind: NormName  # what a norm computes, see norms.md
    norm_epsilon: Positive  # added to the variance
    embedding_norm: bool  # a norm on the sum of the embeddings
    first_norm: bool  # with norm=pre: a norm also before the first attention, in an encoder-decoder on either side
    position: PositionName  # position encoding
    rotary_base: Positive  # pair i of key_size // 2 rotates by base^(-i / (key_size // 2)) radians per token
    local_window: Size | None  # tokens on either side that local layers attend to; null: no layer is local
    global_every: Size  # one layer in this many attends to all tokens, starting with the first; the others are local
    local_rotary_base: Positive  # rotary_base of the local layers
    segment_length: Size | None  # tokens of a segment, which attend to it and to the one before; null: no segments
    sinusoidal_base: Positive  # the slowest sinusoid rotates by about 1 / base radians per token
    position_start: Literal["normal", "sinusoidal"]  # start of learned positions
    relative_buckets: Annotated[int, Field(ge=4, le=LARGEST_SIZE)]  # T5's buckets of distance, both directions together
    relative_distance: Size  # distances from this one on share the last bucket
    activation: Literal["gelu", "gelu_tanh", "relu"]  # activation of the feed-forward
    gated: bool  # the feed-forward has a second inner map, which the activation's output multiplies
    linear_bias: bool  # biases of the attention's and the feed-forward's linear maps
    token_types: Annotated[int, Field(ge=0, le=LARGEST_SIZE)]  # rows of the token-type table; 0 = no table
    head_transform: bool  # a dense layer, the activation and a norm before the output embedding, as BERT has
    tied: bool  # the output embedding is the input embedding
    head_bias: bool  # a bias on each logit
    output_scaled: bool  # the input of the output embedding is divided by sqrt(embedding_size)
    dropout: Fraction  # dropout of embeddings and of each sub-layer's output
    attention_dropout: Fraction  # dropout of the attention weights
    branches_scaled: bool  # the last map of each residual branch starts smaller by sqrt(number of branches)
    # standard deviation of the starting values; null: 1 for embeddings, 1 / sqrt(inputs) for linear maps,
    # 1 / sqrt(inputs key_size) for queries of unscaled logits
    initial_std: Positive | None

    def idle(self) -> Iterator[Idle]:
        """Those of local layers if there are none; and sinusoids that learned positions do not start from."""
        if self.local_window is None:
            for key in ("global_every", "local_rotary_base"):
                yield Idle(key, "local_window=null", "local_window=TOKENS")
        elif self.global_every == 1:
            for key in ("local_window", "local_rotary_base"):
                yield Idle(key, "global_every=1", "global_every=2 or more")
        if self.position == "learned" and self.position_start == "normal":
            yield Idle("sinusoidal_base", "position_start=normal", "position_start=sinusoidal")

    @model_validator(mode="after")
    def _buckets(self) -> Model:
        if self.relative_buckets % 2 or self.relative_distance <= self.relative_buckets // 4:
            raise ValueError(
                f"relative_buckets {self.relative_buckets} must be even, and less than 4 times "
                f"relative_distance {self.relative_distance}"
            )
        return self

    @model_validator(mode="after")
    def _first(self) -> Model:
        if not self.first_norm and (self.norm != "pre" or self.sharing in ("attention", "all")):
            raise ValueError(
                f"first_norm false: needs norm=pre and sharing=none, not norm={self.norm}, sharing={self.sharing}"
            )
        return self

    @model_validator(mode="after")
    def _segments(self) -> Model:
        if self.segment_length is None:
            return self
        if self.length % self.segment_length:
            raise ValueError(f"segment_length {self.segment_length}: must divide length {self.length}")
        if POSITION_KINDS[self.position].embedding is not None:
            relative = ", ".join(name for name, kind in POSITION_KINDS.items() if kind.embedding is None)
            raise ValueError(
                f"segment_length {self.segment_length}: position {self.position} would give a token and the one a "
                f"segment before it the same place; position must be one of {relative}"
            )
        if self.local_window is not None:
            raise ValueError(f"segment_length {self.segment_length}: needs local_window=null, not {self.local_window}")
        return self

    @property
    def norms_by_batch(self) -> bool:
        """Whether the norms' statistics are of a batch's tokens, so that a token depends on the others."""
        return NORM_KINDS[self.norm_kind].of_batch

    @model_validator(mode="after")
    def _statistics(self) -> Model:
        if self.norms_by_batch and self.head_transform:
            raise ValueError(
                f"norm_kind {self.norm_kind} needs head_transform=false: this norm would see only predicted positions"
            )
        if self.norms_by_batch and self.sharing != "none":
            raise ValueError(
                f"norm_kind {self.norm_kind} needs sharing=none: shared norms have one running mean and variance for "
                "layers whose own differ"
            )
        return self
