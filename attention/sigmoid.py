"""Sigmoid attention (Ramapuram et al. 2024, 2409.04431): each weight is a sigmoid of its logit, without a softmax."""

# b batch, n query, m memory, h heads, k key size, v value size

from __future__ import annotations

import torch
from torch import Tensor

from attention.kernels import autocast
from attention.kernels.dropout import drop
from attention.kernels.problem import Hook, Problem, unchanged
from attention.layers.attention_layer import AttendOptions, Sizes
from attention.layers.projected import ProjectedAttention


class Attention(ProjectedAttention):
    """sigmoid(QK^T / sqrt(key_size) - log(n)) V in each head; n is the number of positions that a query may attend to.

    With the paper's b = -log(n), the weights of a row sum to about 1 at the start, as those of a softmax do. In the
    paper n is the length of the sequence. Here n excludes padding and the positions that a causal mask hides.
    """

    stages = ("logits", "mixed_logits", "mixed_weights", "outputs")
    own_kernel = "sigmoid"

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        key_size: int | None = None,
        value_size: int | None = None,
        memory_size: int | None = None,
        linear_bias: bool = True,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        sizes = Sizes.alike(hidden_size, heads, key_size, value_size)
        super().__init__(
            hidden_size,
            memory_size,
            sizes,
            linear_bias=linear_bias,
            scale=sizes.key_size**-0.5,
            dropout=dropout,
            backend=backend,
        )

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of all heads, [B, N, H, V]."""
        problem = Problem.of(
            query,
            key,
            value,
            bias=options.bias,
            mask=options.mask,
            causal=options.causal,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            dropout_seed=options.dropout_seed,
        )
        with autocast.disabled(problem.query):
            return attend_by_sigmoid(problem, self.hook or unchanged)


def attend_by_sigmoid(problem: Problem, hook: Hook) -> Tensor:
    """Compute the paper's equation in plain einsum, [B, N, H, V].

    The sigmoid is in float32 or better. Autograd keeps the maps for the backward pass.
    """
    logits = hook("logits", torch.einsum("bnhk,bmhk->bhnm", problem.query, problem.key) * problem.scale)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if problem.bias is not None:
        logits = logits + problem.bias
    logits = hook("mixed_logits", logits)
    allowed = problem.reached(problem.permitted()[0])
    if allowed is None:
        weights = torch.sigmoid(logits - logits.new_tensor(logits.shape[-1]).log())
    else:
        allowed = allowed.expand(logits.shape)
        attended = allowed.sum(-1, keepdim=True).clamp(min=1).to(logits.dtype)
        weights = torch.sigmoid(logits - attended.log()).masked_fill(~allowed, 0.0)
    weights = drop(hook("mixed_weights", weights.to(problem.value.dtype)), problem)
    return hook("outputs", torch.einsum("bhnm,bmhv->bnhv", weights, problem.value))
