"""Linear attention (Katharopoulos et al. 2020, 2006.16236): a kernel of features replaces the softmax."""

# b batch, n queries, m memory, h heads, k key size, v value size; c chunks of t positions

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attention.kernels import autocast
from attention.kernels.problem import STAGES
from attention.layers.attention_layer import AttendOptions, Sizes
from attention.layers.cost import Cost
from attention.layers.projected import ProjectedAttention

CHUNK = 64  # positions of a causal sequence that are computed together, given the state before them


class Attention(ProjectedAttention):
    """phi(q_n) S / (phi(q_n) z) in each head; S sums phi(k_m) v_m^T over m, z sums phi(k_m), and phi = elu + 1.

    In causal attention both sums end at n. S and z are then a recurrent state, and time grows linearly with the length.
    The result equals that of a softmax over the logits log(phi(q) phi(k)^T). This form computes all pairs and allows a
    bias. It is used if there is a bias, a mask that depends on the query, dropout or a hook, in causal attention to a
    memory of another length, and as the backend `reference`. A rotary position rotates q and k before phi.
    """

    stages = STAGES[1:]  # its logits are not QK^T
    own_kernel = "linear"

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
        super().__init__(
            hidden_size,
            memory_size,
            Sizes.alike(hidden_size, heads, key_size, value_size),
            linear_bias=linear_bias,
            scale=1.0,
            dropout=dropout,
            backend=backend,
        )

    def attend(
        self, x: Tensor, memory: Tensor, query: Tensor, key: Tensor, value: Tensor, options: AttendOptions
    ) -> Tensor:
        """The outputs of all heads, [B, N, H, V]."""
        query, key, value = map(autocast.cast, (query, key, value))
        dropout = self.dropout if self.training else 0.0
        with autocast.disabled(query):
            query, key = features(query), features(key)
            mask = options.mask
            by_pairs = options.bias is not None or dropout > 0 or self.hook is not None or self.backend == "reference"
            by_pairs |= options.causal and query.shape[1] != key.shape[1]
            if not by_pairs and (mask is None or mask.shape[2] == 1):
                if mask is not None:
                    key = key * mask.permute(0, 3, 1, 2).to(key.dtype)  # [B, h, 1, M] to [B, M, h, 1]
                return attend_causally(query, key, value) if options.causal else attend_by_state(query, key, value)
            logits = torch.einsum("bnhk,bmhk->bhnm", query, key)
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            # so that products that underflow have a finite logarithm
            logits = wide.clamp(min=torch.finfo(wide.dtype).tiny).log()
            return self.run_kernel(query[..., :0], key[..., :0], value, options.with_bias(logits), self.hook)

    def cost(self, queries: int, memory: int) -> Cost:
        """Cost of the layer. S takes m h d_k d_v multiplies, reading it n h d_k d_v, and the norm n h d_k.

        These are what the mechanism needs. The form that computes all pairs, and the chunks of causal attention, take
        more. The cache holds S and z, whatever the length.
        """
        maps = super().cost(queries, 0)
        linear = memory * (self.key.weight.numel() + self.value.weight.numel())
        state = self.key_heads * self.key_size * self.value_size
        norm = self.key_heads * self.key_size
        return Cost(
            maps.parameters, maps.multiplies + linear + (queries + memory) * state + queries * norm, state + norm
        )


def features(x: Tensor) -> Tensor:
    """Compute elu(x) + 1 of each number of x, without cancellation for negative ones."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def attend_by_state(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend to the whole memory through its sums: features [B, N, H, K], [B, M, H, K] and values -> [B, N, H, V]."""
    state = torch.einsum("bmhk,bmhv->bhkv", key, value)
    return normalized(torch.einsum("bnhk,bhkv->bnhv", query, state), torch.einsum("bnhk,bhk->bnh", query, key.sum(1)))


def attend_causally(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend up to each query's own position, by pairs within a chunk and by the state before it.

    Shapes are those of `attend_by_state`, with M = N.
    """
    N = query.shape[1]
    chunk = max(1, min(CHUNK, N))
    query, key, value = (
        F.pad(each, (0, 0, 0, 0, 0, -N % chunk)).unflatten(1, (-1, chunk)) for each in (query, key, value)
    )
    pairs = torch.einsum("bcnhk,bcmhk->bchnm", query, key).tril()
    state = torch.einsum("bcmhk,bcmhv->bchkv", key, value)
    before, total = sum_before(state), sum_before(key.sum(2))
    output = torch.einsum("bchnm,bcmhv->bcnhv", pairs, value) + torch.einsum("bcnhk,bchkv->bcnhv", query, before)
    norm = pairs.sum(-1).transpose(2, 3) + torch.einsum("bcnhk,bchk->bcnh", query, total)
    return normalized(output, norm).flatten(1, 2)[:, :N]


def sum_before(chunks: Tensor) -> Tensor:
    """Sum, for each chunk, all chunks before it: [B, c, ...] -> [B, c, ...], in float32 or better."""
    wide = torch.promote_types(chunks.dtype, torch.float32)
    sums = chunks[:, :-1].cumsum(1, dtype=wide).to(chunks.dtype)
    return torch.cat([torch.zeros_like(chunks[:, :1]), sums], dim=1)


def normalized(output: Tensor, norm: Tensor) -> Tensor:
    """Divide output [..., H, V] by norm [..., H]; the result is 0 where nothing is attended to."""
    return output / norm.masked_fill(norm == 0, 1.0)[..., None]
