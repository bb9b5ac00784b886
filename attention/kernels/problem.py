"""The input of every kernel: one problem of attention, checked and uniform."""

# B batch, N queries, M memory, K key size, V value size; h_k, h, h_v: heads of the keys, of the softmax, of the values

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from attention.kernels.autocast import cast

# The intermediate results of attention, in the order in which they are computed:
#   logits [B, h_k, N, M], QK^T scale; mixed_logits [B, h, N, M], after P_l and the bias, before the mask;
#   weights [B, h, N, M], of the softmax; mixed_weights [B, h_v, N, M], after P_w, by which the values are summed;
#   outputs [B, N, h_v, V], of each head
Stage = Literal["logits", "mixed_logits", "weights", "mixed_weights", "outputs"]
STAGES: tuple[Stage, ...] = ("logits", "mixed_logits", "weights", "mixed_weights", "outputs")

# Receives each stage with its tensor and returns the tensor to continue with: the same one, or another of its shape
Hook = Callable[[Stage, Tensor], Tensor]


def unchanged(stage: Stage, tensor: Tensor) -> Tensor:
    """The hook that changes nothing."""
    return tensor


class Projection(NamedTuple):
    """P_l or P_w of talking heads (2003.02436), from h_in to h_out heads: the sum of the terms that are not None."""

    static: Tensor | None = None  # [h_in, h_out]
    query: Tensor | None = None  # [B, N, h_in, h_out], dynamic: x2l or x2w
    memory: Tensor | None = None  # [B, M, h_in, h_out], dynamic: m2l or m2w

    def terms(self) -> list[Tensor]:
        """The terms that are not None, the static one first."""
        return [term for term in self if term is not None]


class Problem(NamedTuple):
    """The arguments of `attention.layers.attend.attend`; `Problem.of` checks them and makes them uniform."""

    query: Tensor  # [B, N, h_k, K]
    key: Tensor  # [B, M, h_k, K]
    value: Tensor  # [B, M, h_v, V]
    logits_projection: Projection | None  # with a static term or dynamic terms, not both
    weights_projection: Projection | None
    bias: Tensor | None  # four dimensions, each full or 1: [B, h, N, M]
    mask: Tensor | None  # likewise; True = may attend
    causal: bool
    scale: float
    dropout: float
    dropout_seed: Tensor | None  # int64 without dimensions; not None if dropout > 0

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        logits_projection: Projection | None = None,
        weights_projection: Projection | None = None,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
        dropout_seed: Tensor | int | None = None,
    ) -> Problem:
        """Check the arguments, cast them to autocast's dtype, and add static terms into dynamic ones.

        Raises ValueError for shapes that don't fit, a mask that isn't bool, a dropout out of range or without a seed,
        a seed that isn't int64, and a key size of 0 without a scale.
        """
        B, N, key_heads, _ = query.shape
        M = key.shape[1]
        if key.shape != (B, M, *query.shape[2:]):
            raise ValueError(f"key: has shape {_text(key)}, must be [B, M, h_k, K] for a query {_text(query)}")
        softmax_heads = _heads_after("logits_projection", logits_projection, key_heads, B, N, M)
        value_heads = _heads_after("weights_projection", weights_projection, softmax_heads, B, N, M)
        if value.shape[:3] != (B, M, value_heads):
            raise ValueError(f"value: has shape {_text(value)}, must be [{B}, {M}, {value_heads}, V] (B, M, h_v, V)")
        maps = (B, softmax_heads, N, M)
        return cls(
            cast(query),
            cast(key),
            cast(value),
            _folded(logits_projection),
            _folded(weights_projection),
            None if bias is None else cast(checked_maps("bias", bias, maps)),
            None if mask is None else checked_mask(mask, maps),
            causal,
            _scale_of(query) if scale is None else scale,
            dropout,
            _checked_seed(dropout, dropout_seed),
        )

    def permitted(self, first_row: int = 0) -> tuple[Tensor | None, Tensor | None]:
        """(allowed, empty): where each query may attend, and which rows may attend nowhere.

        Both are bool and broadcastable to [B, h, N, M]; the last dimension of `empty` is 1. If `allowed` is None, every
        query may attend everywhere; if `empty` is None, no row is empty. A bias of -inf forbids a position, as a mask
        does. first_row: the position of the first query.
        """
        allowed = self.mask
        if self.causal:
            queries, memory = self.query.shape[1], self.key.shape[1]
            seen = torch.ones(queries, memory, dtype=torch.bool, device=self.query.device).tril(first_row)
            allowed = seen if allowed is None else allowed & seen
        if self.bias is None and self.mask is None:
            return allowed, None
        reached = self.reached(allowed)
        return allowed, None if reached is None else ~reached.any(-1, keepdim=True)

    def reached(self, allowed: Tensor | None) -> Tensor | None:
        """Those of the `allowed` positions that no bias forbids, broadcastable to [B, h, N, M]; None: all of them."""
        if self.bias is None:
            return allowed
        # a NaN in the bias counts as reached, so that it stays visible
        reached = self.bias != float("-inf")
        return reached if allowed is None else reached & allowed


def _scale_of(query: Tensor) -> float:
    """1 / sqrt(K)."""
    key_size = query.shape[-1]
    if key_size == 0:
        raise ValueError(f"scale: is None, must be a number as a query {_text(query)} has a key size of 0")
    return float(key_size**-0.5)


def _checked_seed(dropout: float, seed: Tensor | int | None) -> Tensor | None:
    """The seed as a tensor, or None if nothing is dropped."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: is {dropout}, must be at least 0 and under 1")
    if dropout == 0:
        return None
    if seed is None:
        raise ValueError(f"dropout_seed: is None, must be an integer as dropout is {dropout}")
    if isinstance(seed, int):
        if not -(2**63) <= seed < 2**63:
            raise ValueError(f"dropout_seed: is {seed}, must be at least -2**63 and under 2**63")
        return torch.tensor(seed, dtype=torch.int64, device="cpu")
    if seed.dtype != torch.int64 or seed.ndim:
        raise ValueError(f"dropout_seed: is {seed.dtype} of shape {_text(seed)}, must be int64 without dimensions")
    return seed


def _heads_after(name: str, projection: Projection | None, heads: int, B: int, N: int, M: int) -> int:
    """The number of heads after the projection. Raises ValueError if its terms don't take `heads` heads."""
    if projection is None or not projection.terms():
        return heads
    mixed = projection.terms()[0].shape[-1]
    for field, term, positions in zip(projection._fields, projection, ((), (B, N), (B, M)), strict=True):
        if term is not None and term.shape != (*positions, heads, mixed):
            raise ValueError(f"{name}.{field}: has shape {_text(term)}, must be {[*positions, heads, mixed]}")
    return mixed


def _folded(projection: Projection | None) -> Projection | None:
    """Add the static term to a dynamic one, as the authors do, which saves a product of maps."""
    if projection is None or not projection.terms():
        return None
    if projection.static is not None and projection.query is not None:
        projection = Projection(None, projection.query + projection.static, projection.memory)
    elif projection.static is not None and projection.memory is not None:
        projection = Projection(None, None, projection.memory + projection.static)
    return Projection(*(None if term is None else cast(term) for term in projection))


def checked_maps(name: str, tensor: Tensor, maps: tuple[int, ...]) -> Tensor:
    """Return the tensor if it has four dimensions, each 1 or that of the maps. Raises ValueError otherwise.

    Fewer dimensions would be ambiguous wherever two of the sizes are equal.
    """
    if tensor.ndim == 4 and all(size in (1, full) for size, full in zip(tensor.shape, maps, strict=True)):
        return tensor
    wanted = f"must have four dimensions, each 1 or that of {list(maps)} (B, h, N, M)"
    if tensor.ndim == 2:
        wanted += f"; of [B, M] give {name}[:, None, None, :], of [N, M] give {name}[None, None]"
    raise ValueError(f"{name}: has shape {_text(tensor)}, {wanted}")


def checked_mask(mask: Tensor, maps: tuple[int, ...]) -> Tensor:
    """Return the mask if its shape fits the maps, and if it is bool. Raises ValueError otherwise."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: has dtype {mask.dtype}, must be bool (True = may attend); use bias to add numbers")
    return checked_maps("mask", mask, maps)


def checked_output(name: str, output: object, shape: list[int], letters: str) -> Tensor:
    """Return what `name` has computed if it is a tensor of this shape. Raises ValueError otherwise."""
    if isinstance(output, Tensor) and list(output.shape) == shape:
        return output
    returned = f"shape {_text(output)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    raise ValueError(f"{name} returns {returned}, must return shape {shape} ({letters})")


def has_no_data(tensor: Tensor) -> bool:
    """Whether the tensor has a shape but no data, as when the memory of a run is predicted."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def _text(tensor: Tensor) -> str:
    return str(list(tensor.shape))
