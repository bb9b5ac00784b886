"""Multi-token attention (Golovneva et al. 2025, 2504.00927): logits mix with those of neighbours, and heads mix."""

# B batch, N queries, M memory, H heads, K key size, V value size; c_q, c_k: rows and columns of a kernel

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention import talking_heads
from attention.kernels import autocast
from attention.layers.cost import Cost
from attention.layers.frame import AttendOptions, check_sizes


class Attention(talking_heads.Attention):
    """Each head's logits are convolved over queries and keys before the softmax; its weights mix by a P_w after it.

    The window of a query is its own position and those before it, that of a key lies around it; logits that are masked
    count as 0 in it. P_w [heads, heads] is the paper's head convolution with one group of all heads. Both start as the
    identity, which is multi-head attention. The norm of the heads' outputs is left out, which the paper's models have.
    """

    positional = True

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        query_window: int = 6,
        key_window: int = 11,
        scaled: bool = True,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        check_sizes(heads=heads, query_window=query_window, key_window=key_window)
        super().__init__(
            hidden_size,
            heads,
            key_size=key_size,
            value_size=value_size,
            memory_size=memory_size,
            scaled=scaled,
            static=("weights",),
            start="identity",
            linear_bias=linear_bias,
            dropout=dropout,
            backend=backend,
        )
        self.convolution = Convolution(heads, query_window, key_window)

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """[B, N, H, V]; the convolved logits are given as the bias of a product of width 0."""
        query, key, value = map(autocast.cast, (query, key, value))
        logits = torch.einsum("bnhk,bmhk->bhnm", query * self.scale, key)
        if options.mask is not None:
            logits = logits.masked_fill(~options.mask, 0.0)
        if options.causal:
            logits = logits.tril()
        logits = self.convolution(logits)
        options = options._replace(bias=logits if options.bias is None else logits + options.bias)
        return super().attend(x, memory, query[..., :0], key[..., :0], value, options)

    def cost(self, queries: int, memory: int) -> Cost:
        """The convolution takes n m h c_q c_k multiplies; of the queries before the next one, c_q - 1 are kept too."""
        kernel = self.convolution.weight
        rows = min(queries, kernel.shape[1] - 1) * self.query.out_features
        own = Cost(kernel.numel(), queries * memory * kernel.numel(), rows)
        return super().cost(queries, memory) + own


class Convolution(nn.Module):
    """A kernel [H, c_q, c_k] over queries and keys, for each head."""

    def __init__(self, heads: int, query_window: int, key_window: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, query_window, key_window))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin with the logits as they are."""
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.weight[:, -1, self.weight.shape[2] // 2] = 1.0

    def forward(self, logits: Tensor) -> Tensor:
        """[B, H, N, M] -> the same: each the sum of those of c_q queries to its own and of c_k keys around its own."""
        rows, columns = self.weight.shape[1:]
        around = F.pad(logits, (columns // 2, (columns - 1) // 2, rows - 1, 0))
        return F.conv2d(around, self.weight[:, None].to(logits.dtype), groups=len(self.weight))
