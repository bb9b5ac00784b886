"""The frame of an attention layer: the inputs and outputs of every mechanism, and what a mechanism declares."""

# B batch, N queries, M memory, D hidden, D_M memory width, H heads, K key size, V value size

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from attention.kernels.autocast import cast
from attention.kernels.problem import STAGES, Hook, Projection, Stage, checked_maps, checked_mask, checked_output
from attention.layers.attend import attend, check_backend
from attention.layers.cost import Cost

Rotation = Callable[[Tensor], Tensor]  # rotates heads [B, N, H, K] by their position
Real = float  # annotates a setting of either sign; a setting that is annotated float must not be negative


class AttendOptions(NamedTuple):
    """Arguments of `attention.layers.attend.attend` besides queries, keys and values; a mechanism may change them."""

    mask: Tensor | None = None  # bool [B, h, N, M], each dimension full or 1; True = may attend
    bias: Tensor | None = None  # [B, h, N, M], each dimension full or 1
    causal: bool = False
    dropout_seed: Tensor | None = None  # int64, no dimensions
    logits_projection: Projection | None = None
    weights_projection: Projection | None = None
    # tensors that earlier layers left for later ones, by name; a layer may add to them
    earlier: dict[str, Tensor] | None = None

    def with_bias(self, bias: Tensor) -> AttendOptions:
        """The options with a further bias, [B, h, N, M]."""
        return self._replace(bias=bias if self.bias is None else bias + self.bias)


class Sizes(NamedTuple):
    """The numbers of heads of a layer, and their widths."""

    key_heads: int  # h_k, heads of queries and keys
    softmax_heads: int  # h, heads of the softmax: a position bias is added to these maps
    value_heads: int  # h_v, heads of the output
    key_size: int  # d_k, width of a query and of a key in a head
    value_size: int  # d_v, width of a head's output

    @classmethod
    def alike(cls, hidden_size: int, heads: int, key_size: int | None, value_size: int | None) -> Sizes:
        """Sizes with the same number of heads everywhere; a size that is None is hidden_size / heads.

        Raises ValueError for a size under 1, and if the heads are to share the hidden size but don't divide it.
        """
        share = equal_share(hidden_size, heads) if key_size is None or value_size is None else 0
        key_size, value_size = (share if size is None else size for size in (key_size, value_size))
        check_sizes(heads=heads, key_size=key_size, value_size=value_size)
        return cls(heads, heads, heads, key_size, value_size)


class AttentionLayer(nn.Module, ABC):
    """A layer of attention: queries from `x`, keys and values from `memory`, and an output as wide as `x`.

    A mechanism defines `project`, `sizes`, `cost` and `keep_heads`, and may redefine `attend`, `combine` and
    `fold_scale`. The class attributes declare what it does not support.
    """

    # the stages that a hook sees; without a softmax there are no "weights"
    stages: ClassVar[tuple[Stage, ...]] = STAGES
    # the name of the mechanism's own arithmetic, which replaces the kernels; None: `attend` chooses a kernel
    own_kernel: ClassVar[str | None] = None
    # whether `keep_heads` can remove heads
    prunable: ClassVar[bool] = True
    # whether weights depend on where the queries and keys stand in the sequence, besides their features
    positional: ClassVar[bool] = False

    output: nn.Linear

    def __init__(
        self,
        softmax_heads: int,
        value_heads: int,
        *,
        scale: float,
        dropout: float,
        backend: str,
        scaled: bool = True,
    ) -> None:
        """scale: factor of the logits. scaled: False if smaller starting values of the queries are to replace it.

        Raises ValueError for a dropout out of range, an unknown backend, and a backend other than auto and reference
        for arithmetic of the mechanism's own.
        """
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: is {dropout}, must be at least 0 and under 1")
        check_backend(backend)
        if self.own_kernel is not None and backend not in ("auto", "reference"):
            why = "the layer has arithmetic of its own"
            raise ValueError(f"backend: {backend} can't do this: {why}; use auto or reference")
        self.softmax_heads, self.value_heads = softmax_heads, value_heads
        self.scale, self.scaled = scale, scaled
        self.dropout = dropout
        self.backend = backend
        self.kernel: str | None = None  # the kernel that ran last
        self.hook: Hook | None = None  # if set, the reference kernel runs; the hook sees and may change each stage

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        rotary: Rotation | tuple[Rotation, Rotation] | None = None,
        dropout_seed: Tensor | None = None,
        earlier: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Let x [B, N, D] attend to memory [B, M, D_M], or to itself if memory is None -> [B, N, D].

        mask (bool, True = may attend) and bias have four dimensions, each 1 or that of [B, softmax_heads, N, M]. A mask
        [B, M] of padding is passed as mask[:, None, None, :]. causal: position n attends to 0..n only.
        rotary rotates queries and keys [B, N, H, K] by their position. With a memory it is a pair, one for the queries
        and one for the keys. dropout_seed (int64, no dimensions) decides in training which weights are dropped.
        earlier passes through all layers of a model in a forward pass; the first layer gets it empty. Raises TypeError
        for an input that isn't a tensor, and ValueError for a single rotary with a memory, for shapes that don't fit,
        for a mask that isn't bool, for dropout without a seed, for a backend that can't do the layer, and for an output
        of another shape. Only the mechanism knows D_M: torch raises RuntimeError for a memory of another width.
        """
        _check_tensors(x=x, memory=memory, mask=mask, bias=bias)
        if memory is not None and callable(rotary):
            raise ValueError("rotary: rotates by the positions of one sequence; with a memory give a pair")
        memory = x if memory is None else memory
        if x.ndim != 3 or x.shape[2] != self.output.out_features:
            raise ValueError(f"x: has shape {list(x.shape)}, must be [B, N, {self.output.out_features}]")
        if memory.ndim != 3 or len(memory) != len(x):
            raise ValueError(f"memory: has shape {list(memory.shape)}, must be [{len(x)}, M, D_M] (B, M, D_M)")
        # cast once, because each map would cast again and keep its copy for the backward pass
        to_itself, x = memory is x, cast(x)
        memory = x if to_itself else cast(memory)
        query, key, value = self.project(x, memory)
        if rotary is not None:
            turn_query, turn_key = (rotary, rotary) if callable(rotary) else rotary
            query, key = turn_query(query), turn_key(key)
        maps = (*x.shape[:1], self.sizes.softmax_heads, x.shape[1], memory.shape[1])
        mask = None if mask is None else checked_mask(mask, maps)
        bias = None if bias is None else checked_maps("bias", bias, maps)
        options = AttendOptions(mask, bias, causal, dropout_seed, earlier=earlier)
        # a kernel that runs instead of the mechanism's own arithmetic replaces the name
        self.kernel = self.own_kernel
        output = self.combine(self.attend(x, memory, query, key, value, options))
        # a residual connection would broadcast an output of one example or position
        return checked_output("combine", output, list(x.shape), "B, N, D")

    @property
    @abstractmethod
    def sizes(self) -> Sizes:
        """The current numbers of heads and their widths."""

    @abstractmethod
    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, N, h_k, K], keys [B, M, h_k, K], values [B, M, h_v, V] from x [B, N, D], memory [B, M, D_M]."""

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of all heads, [B, N, h_v, V]; the arguments are those of `project` and its results."""
        return self.run_kernel(query, key, value, options, self.hook)

    def run_kernel(
        self, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions, hook: Hook | None
    ) -> Tensor:
        """Compute softmax attention with these options, [B, N, h_v, V], and keep the kernel's name in `kernel`.

        The hook sees only the stages that the mechanism declares.
        """
        arguments = options._asdict()
        del arguments["earlier"]
        return attend(
            query,
            key,
            value,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
            hook=None if hook is None else self.of_stages(hook),
            report=self._set_kernel,
            **arguments,
        )

    def of_stages(self, hook: Hook) -> Hook:
        """A hook that is called for the stages of this mechanism only."""
        return lambda stage, tensor: hook(stage, tensor) if stage in self.stages else tensor

    def _set_kernel(self, kernel: str) -> None:
        self.kernel = kernel

    def fold_scale(self) -> None:
        """Multiply the starting queries by 1 / sqrt(key_size), so that unscaled logits start as scaled ones.

        T5 starts this way (Raffel et al. 2020, 1910.10683), and so do talking heads (Shazeer et al. 2020, 2003.02436).
        Their query maps have variance 1 / (d_model d_k). Otherwise the logits would have variance d_k, and the softmax
        would start saturated.
        """
        with torch.no_grad():
            self.get_parameter("query.weight").mul_(self.sizes.key_size**-0.5)

    def combine(self, heads: Tensor) -> Tensor:
        """Combine the outputs of the heads [B, N, h_v, V] into one vector for each position, [B, N, D]."""
        return self.output(heads.flatten(2))

    def keep_heads(self, heads: Sequence[int]) -> None:
        """Keep only these value heads and what they are computed from, in place. The others then contribute nothing.

        heads: indices; a repeated index keeps its head as many times. Whatever the remaining heads need through a
        projection stays, and so do parameters that heads share.
        """
        raise NotImplementedError

    def head_mixing_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that mix heads, such as P_l and P_w. They may have their own learning rate."""
        yield from ()

    def static_projections(self) -> tuple[Tensor | None, Tensor | None]:
        """P_l [h_k, h] and P_w [h, h_v], which mix heads in the same way at all positions; None if there is none."""
        return None, None

    @abstractmethod
    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer for one example with `queries` queries and `memory` memory positions."""


def equal_share(hidden_size: int, heads: int, name: str = "heads") -> int:
    """The width of a head if the heads share the hidden size. Raises ValueError if they don't divide it."""
    check_sizes(hidden_size=hidden_size, **{name: heads})
    if hidden_size % heads:
        raise ValueError(
            f"{name}: is {heads}, must divide hidden_size = {hidden_size}, or give key_size and value_size"
        )
    return hidden_size // heads


def check_sizes(**sizes: int) -> None:
    """Check that each size is an integer of at least 1. Raises TypeError or ValueError that names the first that is
    not.
    """
    for name, size in sizes.items():
        if not isinstance(size, Integral):
            raise TypeError(f"{name}: is {size!r}, must be an integer")
        if size < 1:
            raise ValueError(f"{name}: is {size}, must be at least 1")


def _check_tensors(**inputs: Tensor | None) -> None:
    for name, value in inputs.items():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{name}: is a {type(value).__name__}, must be a tensor")
