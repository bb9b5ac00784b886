"""The kinds of position: one table, read by the settings and by the model that is built from them."""

from __future__ import annotations

from typing import NamedTuple


class PositionKind(NamedTuple):
    """How a model knows the order of its tokens: in the embedding, in the attention, or in both.

    Each field is `MODULE:NAME` of what makes that part, imported when a model is built; None: no such part.
    """

    # (model) -> a module that adds positions to the embeddings [B, N, E]
    embedding: str | None = None
    # (model) -> what turns queries and keys [B, N, H, K] by their positions, `first`, `first` + 1, ...
    rotation: str | None = None
    # (model, softmax heads, causal) -> a module that gives the logits' bias [1, H, N, N] of a length N
    bias: str | None = None
    # whether the positions end at model.length, so that a longer sequence is impossible
    trained_to_length: bool = False
    # the settings that are read with some kinds only, and with this one
    reads: tuple[str, ...] = ()


POSITION_TABLE = "embedding.position.weight"  # the table of learned positions among the weights of a model
POSITION_KINDS = {
    # Devlin et al. 2019, 1810.04805
    "learned": PositionKind(
        embedding="experiments.model.layers.position:Learned",
        trained_to_length=True,
        reads=("model.position_start", "model.sinusoidal_base", "optimizer.position_rate_factor"),
    ),
    # Vaswani et al. 2017, 1706.03762
    "sinusoidal": PositionKind(
        embedding="experiments.model.layers.position:Sinusoidal", reads=("model.sinusoidal_base",)
    ),
    # Su et al. 2021, 2104.09864
    "rotary": PositionKind(
        rotation="experiments.model.layers.position:rotary", reads=("model.rotary_base", "model.local_rotary_base")
    ),
    # Raffel et al. 2020, 1910.10683
    "relative": PositionKind(
        bias="experiments.model.layers.position:relative_bias",
        reads=("model.relative_buckets", "model.relative_distance", "optimizer.position_rate_factor"),
    ),
    # Press et al. 2022, 2108.12409
    "alibi": PositionKind(bias="experiments.model.layers.position:alibi"),
    "none": PositionKind(),
}
