"""Attention with a sink (after 2309.17453): a head may attend to nothing, by softmax off by one or a learned sink."""

# B batch, N queries, M memory, H heads, K key size, V value size

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention import multi_head
from attention.kernels.problem import Hook, Stage
from attention.layers import cost
from attention.layers.attention_layer import AttendOptions
from attention.layers.cost import Cost
from attention.layers.projected import kept


class Attention(multi_head.Attention):
    """Multi-head attention with the weights exp(l_m) / (exp(s) + sum over m of exp(l_m)), where l are the logits.

    The weights of a query sum to less than 1. If `learned`, s is a parameter of each head that starts at 0. Otherwise s
    is 0, which is the softmax off by one of Miller 2023. As s falls, the layer approaches multi-head attention. The
    sink is computed as an additional memory position whose value is 0 and whose logit comes from an additional feature.
    Every kernel can therefore compute it, but `cuda` refuses a learned sink, with which key sizes are no multiples of
    8, and any sink in causal attention, where the mask differs by query.
    """

    stages = ("logits", "mixed_logits", "mixed_weights", "outputs")

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        scaled: bool = True,
        learned: bool = True,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            hidden_size,
            heads,
            key_size=key_size,
            value_size=value_size,
            memory_size=memory_size,
            scaled=scaled,
            linear_bias=linear_bias,
            dropout=dropout,
            backend=backend,
        )
        self.sink = Sink(heads) if learned else None

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, H, V]; the sink is put before the memory."""
        key, value = (F.pad(each, (0, 0, 0, 0, 1, 0)) for each in (key, value))
        if self.sink is not None:
            query, key = F.pad(query, (0, 1), value=1.0), F.pad(key, (0, 1))
            sink = F.pad((self.sink.logit / self.scale).to(key.dtype)[:, None], (key.shape[-1] - 1, 0))
            key = torch.cat([sink.expand(len(key), 1, *sink.shape), key[:, 1:]], dim=1)
        options = options._replace(bias=_widened(options.bias, key), mask=self._mask(query, key, options), causal=False)
        hook = None if self.hook is None else self._beside_the_sink(self.hook)
        return self.run_kernel(query, key, value, options, hook)

    def _mask(self, query: Tensor, key: Tensor, options: AttendOptions) -> Tensor | None:
        """The mask with a column for the sink in front.

        It includes the causal mask, because that of the kernels would count the sink as a position.
        """
        mask = options.mask
        if options.causal:
            past = torch.ones(query.shape[1], key.shape[1] - 1, dtype=torch.bool, device=query.device).tril()
            mask = past[None, None] if mask is None else mask & past
        return None if mask is None else F.pad(mask.expand(*mask.shape[:3], key.shape[1] - 1), (1, 0), value=True)

    def _beside_the_sink(self, hook: Hook) -> Hook:
        """A hook for maps that have the sink in their first column; it calls `hook` with the other columns."""

        def inner(stage: Stage, tensor: Tensor) -> Tensor:
            if stage == "outputs":
                return hook(stage, tensor)
            return torch.cat([tensor[..., :1], hook(stage, tensor[..., 1:])], dim=-1)

        return inner

    def keep_key_heads(self, heads: Sequence[int]) -> None:
        """Keep only these heads and their sinks, in place."""
        super().keep_key_heads(heads)
        if self.sink is not None:
            self.sink.logit = kept(self.sink.logit, heads)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of multi-head attention, plus one memory position in both products.

        A learned sink also adds one feature to QK^T.
        """
        learned = 0 if self.sink is None else self.key_heads
        widths = self.key_heads * self.key_size, self.value_heads * self.value_size
        sink = cost.attention(queries, 1, *widths) + cost.attention(queries, memory + 1, learned, 0)
        return super().cost(queries, memory) + sink + Cost(parameters=learned)


class Sink(nn.Module):
    """The logits [H] of the sinks."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with the softmax off by one."""
        nn.init.zeros_(self.logit)


def _widened(bias: Tensor | None, key: Tensor) -> Tensor | None:
    """The bias with a first column of 0 for the sink."""
    return None if bias is None else F.pad(bias.expand(*bias.shape[:3], key.shape[1] - 1), (1, 0))
