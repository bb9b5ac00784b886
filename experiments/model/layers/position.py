"""The parts of a model that tell it the order of its tokens, in the embedding or in the attention."""

# B batch, N length, D hidden size, E embedding size, H heads, K key size, O = 2 N - 1 offsets of two positions

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attention.layers.rotary import Rotary
from experiments.failures.failure import Mistake
from experiments.settings.model import Model
from experiments.settings.position import POSITION_KINDS


class OffsetRotation(Protocol):
    """Rotates queries and keys [B, N, H, K] by their positions, of which the first is `first`."""

    def __call__(self, x: Tensor, first: int = 0) -> Tensor:
        """[B, N, H, K] -> [B, N, H, K]."""


def embedded_position(model: Model) -> nn.Module:
    """A module that adds positions to the embeddings [B, N, E], or leaves them as they are."""
    name = POSITION_KINDS[model.position].embedding
    module: nn.Module = nn.Identity() if name is None else _build_part(name, model)
    return module


def rotation(model: Model) -> OffsetRotation | None:
    """The rotation of queries and keys [B, N, H, K] by their positions; None if the model has none."""
    name = POSITION_KINDS[model.position].rotation
    return None if name is None else _build_part(name, model)


def position_bias(model: Model, heads: int, causal: bool = False) -> nn.Module | None:
    """A module that computes the bias [1, H, N, N] of the logits for a length N; None if the model has none.

    heads: H, the heads of the softmax. causal: whether the attention is causal.
    """
    name = POSITION_KINDS[model.position].bias
    return None if name is None else _build_part(name, model, heads, causal)


def _build_part(name: str, *arguments: Any) -> Any:
    """Import `MODULE:NAME` and call it with the arguments."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)(*arguments)


class Learned(nn.Embedding):
    """A learned vector for each position, added to its embedding (Devlin et al. 2019, 1810.04805)."""

    def __init__(self, model: Model) -> None:
        self.start, self.base = model.position_start, model.sinusoidal_base
        self.std = 1.0 if model.initial_std is None else model.initial_std
        super().__init__(model.length, model.embedding_size)

    def reset_parameters(self) -> None:
        """Draw normal vectors, or set sinusoids / sqrt(E).

        With a norm after the sum, the latter starts like `Sinusoidal`.
        """
        if self.start == "normal":
            nn.init.normal_(self.weight, std=self.std)
        else:
            with torch.no_grad():
                self.weight.copy_(
                    sinusoids(self.num_embeddings, self.embedding_dim, self.base) / math.sqrt(self.embedding_dim)
                )

    def forward(self, x_BNE: Tensor) -> Tensor:
        """x [B, N, E] -> [B, N, E]. Raises Mistake if N is over model.length."""
        return x_BNE + first_rows(self.weight, x_BNE.size(1))


class Sinusoidal(nn.Module):
    """Adds sinusoids to the embeddings (1706.03762, 3.4 and 3.5).

    The embeddings are multiplied by sqrt(E) first, because the sinusoids would drown unscaled embeddings.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.table_NE: Tensor
        self.register_buffer(
            "table_NE", sinusoids(model.length, model.embedding_size, model.sinusoidal_base), persistent=False
        )

    def forward(self, x_BNE: Tensor) -> Tensor:
        """x [B, N, E] -> [B, N, E]. Raises Mistake if N is over model.length."""
        return x_BNE * math.sqrt(x_BNE.size(-1)) + first_rows(self.table_NE, x_BNE.size(1))


def rotary(model: Model) -> Rotary:
    """The rotation by the angles of `model.rotary_base` (Su et al. 2021, 2104.09864)."""
    return Rotary(model.rotary_base)


def relative_bias(model: Model, heads: int, causal: bool) -> RelativeBias:
    """T5's bias with the model's buckets."""
    std = model.hidden_size**-0.5 if model.initial_std is None else model.initial_std
    return RelativeBias(model.relative_buckets, model.relative_distance, heads, causal, std)


def alibi(model: Model, heads: int, causal: bool) -> Alibi:
    """ALiBi, which has no settings."""
    return Alibi(heads)


def first_rows(table: Tensor, length: int) -> Tensor:
    """The rows of a position table for a sequence of this length. Raises Mistake if it is longer than the table."""
    if length > table.size(0):
        raise Mistake(f"a sequence of {length} tokens is longer than model.length={table.size(0)}, the position table")
    return table[:length]


def sinusoids(length: int, hidden_size: int, base: float) -> Tensor:
    """Table [N, D]: PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i + 1) = cos(p / base^(2i/D)) (1706.03762, 3.5)."""
    feature = torch.arange(hidden_size, dtype=torch.float64)
    frequency = base ** (-(feature - feature % 2) / hidden_size)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.where(feature % 2 == 0, angle.sin(), angle.cos()).to(torch.get_default_dtype())


def bucket(offset: Tensor, buckets: int, distance: int, causal: bool = False) -> Tensor:
    """Bucket in [0, buckets) of an offset, memory position minus query position (Raffel et al. 2020, 1910.10683, 2.1).

    The lower half of the buckets is for memory at or before the query, the upper half for memory after it. If causal,
    all buckets are for memory at or before the query, and later positions, which are masked, fall into bucket 0. In
    each half, the first half of the buckets hold one distance each. The others widen logarithmically up to `distance`;
    all larger distances share the last bucket.
    """
    half = buckets if causal else buckets // 2
    exact = half // 2
    far = -offset.clamp(max=0) if causal else offset.abs()
    growth = torch.log(far.clamp(min=exact).double() / exact) / math.log(distance / exact)
    widening = exact + (growth * (half - exact)).long()
    one_sided = torch.where(far < exact, far, widening.clamp(max=half - 1))
    return one_sided if causal else one_sided + half * (offset > 0)


class RelativeBias(nn.Module):
    """A learned bias for each softmax head and bucket of offsets, with one table for all layers.

    std: the deviation of its starting values; that of transformers' T5 is 1 / sqrt(D).
    """

    def __init__(self, buckets: int, distance: int, heads: int, causal: bool, std: float) -> None:
        super().__init__()
        if buckets % 2:
            raise Mistake(f"model.relative_buckets={buckets}: must be even, as the two directions share them")
        exact = buckets // (2 if causal else 4)
        if distance <= exact:
            raise Mistake(
                f"model.relative_distance={distance}: must be above {exact}, the number of distances that "
                f"have a bucket each with model.relative_buckets={buckets}"
            )
        self.distance, self.causal = distance, causal
        self.table = BiasTable(buckets, heads, std)

    def forward(self, length: int) -> Tensor:
        """The bias [1, H, N, N] of queries and memory positions."""
        offset_O = torch.arange(1 - length, length, device=self.table.weight.device)
        bias_OH = self.table(bucket(offset_O, self.table.num_embeddings, self.distance, self.causal))
        # window w of N offsets starts at w - (N - 1), so it is the row of query N - 1 - w
        return bias_OH.T.unfold(1, length, 1).flip(1)[None]


class BiasTable(nn.Embedding):
    """The biases of the buckets, [buckets, H]."""

    def __init__(self, buckets: int, heads: int, std: float) -> None:
        self.std = std
        super().__init__(buckets, heads)

    def reset_parameters(self) -> None:
        """Draw the biases from a normal distribution."""
        nn.init.normal_(self.weight, std=self.std)


class Alibi(nn.Module):
    """A fixed bias of the logits: minus the distance times a slope for each head (Press et al. 2022, 2108.12409).

    The distance counts the same in both directions; in the paper's decoder, memory comes only before the query.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slope_H: Tensor
        self.register_buffer("slope_H", torch.tensor(slopes(heads)), persistent=False)

    def forward(self, length: int) -> Tensor:
        """The bias [1, H, N, N]."""
        place_N = torch.arange(length, device=self.slope_H.device)
        return -((place_N[:, None] - place_N).abs() * self.slope_H[:, None, None])[None]


def slopes(heads: int) -> list[float]:
    """ALiBi's slopes, from 2^(-8/H) to 2^-8 in equal ratios.

    If H is not a power of two, they are the slopes of the next lower power, then every second slope of the next higher
    one (as in the authors' code, attention_with_linear_biases).
    """
    power = 1 << (heads.bit_length() - 1)
    own = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    return own + (slopes(2 * power)[::2][: heads - power] if heads > power else [])
