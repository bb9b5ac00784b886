"""Multi-token attention (Golovneva et al. 2025, 2504.00927): logits mix with neighbouring logits, and heads mix."""

# B batch, N queries, M memory, H heads, K key size, V value size; c_q, c_k: rows and columns of a kernel

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention import talking_heads
from attention.kernels import autocast
from attention.kernels.problem import STAGES
from attention.layers.attention_layer import AttendOptions, check_sizes
from attention.layers.cost import Cost


class Attention(talking_heads.Attention):
    """Multi-head attention with logits convolved over queries and keys, and weights mixed across heads by P_w.

    The window of a query ends at its own position, and the window of a key is centred on it. Masked logits, and those
    of padding, count as 0 in a window. P_w [heads, heads] is the paper's head convolution with all heads in one group.
    The convolution and P_w start as the identity, which is multi-head attention. The paper's models convolve in every
    fourth layer only, and also have a group norm and a scalar gate; this layer has neither.
    """

    stages = STAGES[1:]  # its logits are not QK^T
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
        """The outputs of the heads, [B, N, H, V]; the convolved logits are the bias of a dot product of width 0."""
        query, key, value = map(autocast.cast, (query, key, value))
        logits = torch.einsum("bnhk,bmhk->bhnm", query * self.scale, key)
        for allowed in (options.mask, None if options.bias is None else options.bias != float("-inf")):
            if allowed is None:
                continue
            if memory is x:
                # the window of a query reaches into the rows of earlier ones, also of padding, which none attends to
                allowed = allowed & allowed.any(-2).unsqueeze(-1)
            logits = logits.masked_fill(~allowed, 0.0)
        if options.causal:
            logits = logits.tril()
        logits = self.convolution(logits)
        return super().attend(x, memory, query[..., :0], key[..., :0], value, options.with_bias(logits))

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. The convolution takes n m h c_q c_k multiplies; the cache also holds c_q - 1 queries."""
        kernel = self.convolution.weight
        rows = min(queries, kernel.shape[1] - 1) * self.query.out_features
        own = Cost(kernel.numel(), queries * memory * kernel.numel(), rows)
        return super().cost(queries, memory) + own


class Convolution(nn.Module):
    """A convolution over queries and keys, with a kernel [c_q, c_k] for each head."""

    def __init__(self, heads: int, query_window: int, key_window: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, query_window, key_window))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as the identity: 1 at the query's and the key's own position, else 0."""
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.weight[:, -1, self.weight.shape[2] // 2] = 1.0

    def forward(self, logits: Tensor) -> Tensor:
        """Convolve logits [B, H, N, M] over c_q queries up to each one and c_k keys around each one."""
        if logits.numel() == 0:
            # conv2d refuses a kernel that is larger than the padded logits
            return logits
        rows, columns = self.weight.shape[1:]
        around = F.pad(logits, (columns // 2, (columns - 1) // 2, rows - 1, 0))
        return F.conv2d(around, self.weight[:, None].to(logits.dtype), groups=len(self.weight))
