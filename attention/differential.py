"""Differential attention (Ye et al. 2024, 2410.05258): the difference of two softmax maps in each head."""

# B batch, N queries, H heads, K key size, V value size

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attention.kernels.problem import Hook, Projection
from attention.layers.attention_layer import AttendOptions, Sizes
from attention.layers.cost import Cost
from attention.layers.projected import ProjectedAttention

# both as in the authors' code (microsoft/unilm, Diff-Transformer)
EPSILON = 1e-5  # of the norm of a head's output
START_STD = 0.1  # standard deviation of the vectors that lambda is computed from


class Attention(ProjectedAttention):
    """(softmax(Q1 K1^T / sqrt(key_size)) - lambda softmax(Q2 K2^T / sqrt(key_size))) V, normed in each head.

    lambda = exp(q1 k1) - exp(q2 k2) + lambda_init, with vectors [K] that the heads of a layer share. Each head's output
    goes through an RMSNorm and is multiplied by 1 - lambda_init. The difference is computed as a product with a P_w
    [2H, H] that has 1 and -lambda in each column, so the kernels of talking heads compute it.
    The paper's lambda_init rises with the layer l: 0.8 - 0.6 exp(-0.3 (l - 1)). Here it is the same in all layers; the
    paper finds that this works as well. With key_size = hidden_size / (2 heads) the layer has about as many parameters
    as multi-head attention.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        lambda_init: float = 0.8,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        if not 0 <= lambda_init < 1:
            raise ValueError(f"lambda_init: is {lambda_init}, must be at least 0 and under 1")
        super().__init__(
            hidden_size,
            memory_size,
            sizes._replace(key_heads=2 * heads, softmax_heads=2 * heads),
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5,
            dropout=dropout,
            backend=backend,
        )
        self.balance = Lambda(sizes.key_size, lambda_init)
        self.head_norm = nn.RMSNorm(sizes.value_size, eps=EPSILON)

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of the heads, [B, N, H, V]: the difference of a head's two maps times its values, normalized."""
        # a block [2, 1] for each head, on the diagonal
        pair = torch.stack([torch.ones_like(weight := self.balance()), -weight])[:, None]
        difference = torch.kron(torch.eye(self.value_heads, dtype=pair.dtype, device=pair.device), pair)
        options = options._replace(weights_projection=Projection(difference))
        hook = None if self.hook is None else _except_outputs(self.hook)
        heads = self.run_kernel(query, key, value, options, hook)
        heads = self.head_norm(heads.to(self.head_norm.weight.dtype)) * (1 - self.balance.initial)
        # after the norm, which would undo a factor
        return heads if self.hook is None else self.hook("outputs", heads)

    def keep_softmax_heads(self, heads: Sequence[int]) -> None:
        """Keep only the two maps of each of these heads, in place."""
        super().keep_softmax_heads([2 * head + half for head in heads for half in (0, 1)])

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. The difference counts as a product with P_w, n m 2h h; lambda and the norm don't count."""
        mixing = Cost(multiplies=queries * memory * self.softmax_heads * self.value_heads)
        own = Cost(parameters=4 * self.key_size + self.value_size)
        return super().cost(queries, memory) + mixing + own


def _except_outputs(hook: Hook) -> Hook:
    return lambda stage, tensor: tensor if stage == "outputs" else hook(stage, tensor)


class Lambda(nn.Module):
    """lambda = exp(q1 k1) - exp(q2 k2) + initial, of four vectors [K]."""

    def __init__(self, size: int, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.query1, self.key1, self.query2, self.key2 = (nn.Parameter(torch.empty(size)) for _ in range(4))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from a normal distribution of standard deviation 0.1."""
        for vector in self.parameters():
            nn.init.normal_(vector, std=START_STD)

    def forward(self) -> Tensor:
        """Compute lambda, a tensor without dimensions."""
        # sums of products, because autocast would compute a dot product in 16 bits
        first, second = (self.query1 * self.key1).sum(), (self.query2 * self.key2).sum()
        return first.exp() - second.exp() + self.initial
