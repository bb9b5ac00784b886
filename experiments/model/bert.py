"""BERT: an encoder that predicts masked tokens (Devlin et al. 2019, 1810.04805), around any attention variant."""

# B batch, N length, D hidden size, V vocabulary, P positions to predict

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.rotary import Rotary
from experiments import settings
from experiments.model.batch_norm import tell_real
from experiments.model.embedding import Embedding
from experiments.model.encoder import ACTIVATIONS, Encoder, Layer
from experiments.model.initial import initialize
from experiments.model.norm import build_norm, deep_gains
from experiments.model.position import RelativeBias
from experiments.model.variant import build_attention


def build(model: settings.Model, variant: dict[str, Any], vocabulary_size: int, seed: int) -> Bert:
    """A BERT on the CPU with its starting values: a function of the arguments, and the global RNG is left as it was."""
    with torch.random.fork_rng(devices=[]):
        bert = Bert(model, variant, vocabulary_size)
    initialize(bert, seed, model.initial_std)
    if model.norm == "deep":
        scale_start(bert.layers, deep_gains(model.layers).beta)
    return bert


def scale_start(layers: list[Layer], gain: float) -> None:
    """Multiply the starting values of the layers' branches, once where layers share them."""
    with torch.no_grad():
        for linear in dict.fromkeys(linear for layer in layers for linear in layer.branch_maps()):
            linear.weight.mul_(gain)


class Bert(nn.Module):
    """`variant`: what a YAML of conf/variant holds: `name`, a module of `attention`, and its arguments."""

    def __init__(self, model: settings.Model, variant: dict[str, Any], vocabulary_size: int) -> None:
        super().__init__()
        attentions = [build_attention(variant) for _ in range(model.layers)]
        self.embedding = Embedding(model, vocabulary_size)
        self.rotary = Rotary(model.rotary_base) if model.position == "rotary" else None
        self.relative: RelativeBias | None = None
        if model.position == "relative":
            self.relative = RelativeBias(model.relative_buckets, model.relative_distance, attentions[0].softmax_heads)
        self.encoder = Encoder(model, attentions)
        self.head = MaskedHead(model, vocabulary_size)

    def forward(
        self,
        tokens_BN: Tensor,
        rows: Tensor | None = None,
        *,
        token_types: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits [P, V] of the positions `rows`, int64 [P] into the flattened batch; without rows [B, N, V] of all.

        token_types: int64 [B, N], None: all 0. mask: bool [B, N], True = a real token, None (faster): all are.

        ValueError: token types without a table for them, or more tokens than the position table has rows.
        """
        tell_real(self, mask)
        hidden = self.encoder(
            self.embedding(tokens_BN, token_types),
            rows,
            mask=None if mask is None else mask[:, None, None, :],
            bias=None if self.relative is None else self.relative(tokens_BN.size(1)),
            rotary=self.rotary,
        )
        return self.head(hidden, self.embedding.token.weight)

    @property
    def layers(self) -> list[Layer]:
        return cast("list[Layer]", list(self.encoder.layers))

    def kernels(self) -> list[str]:
        """Names of the attention kernels that ran last, sorted; empty before the first forward."""
        return sorted({layer.attention.kernel for layer in self.layers} - {None})

    def parameter_counts(self) -> dict[str, int]:
        """Parameters by part, and their total. Each counts once: a tied output embedding as the input embedding."""
        counts = dict.fromkeys(("embedding", "attention", "feed_forward", "norm", "output"), 0)
        for path, parameter in self.named_parameters():
            counts[part(path)] += parameter.numel()
        return counts | {"total": sum(counts.values())}

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of a training step per input token, `predicted_share` of which are predicted.

        2 FLOPs a multiply-add; a backward pass is two forward passes. Matrix products only, as in the papers' formulas.
        """
        attention = sum(layer.attention.cost(length, length).multiplies for layer in self.layers) / length
        *body, last = (linear_multiplies(layer.feed_forward) for layer in self.layers)
        predicted_last = 1.0 if self.encoder.picks_last else predicted_share
        head = linear_multiplies(self.head.transform) + self.embedding.token.weight.numel()
        return 6.0 * (attention + sum(body) + predicted_last * last + predicted_share * head)


class MaskedHead(nn.Module):
    """Logits by the output embedding, the input embedding if tied, after BERT's transform if asked for."""

    def __init__(self, model: settings.Model, vocabulary_size: int) -> None:
        super().__init__()
        self.transform = Transform(model) if model.head_transform else nn.Identity()
        self.output = None if model.tied else nn.Linear(model.hidden_size, vocabulary_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, embedding_VD: Tensor) -> Tensor:
        """hidden [..., D] -> logits [..., V]."""
        weight_VD = embedding_VD if self.output is None else self.output.weight
        return F.linear(self.transform(hidden), weight_VD, self.bias)


class Transform(nn.Module):
    """norm(activation(dense(x))), between BERT's encoder and its output embedding."""

    def __init__(self, model: settings.Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.hidden_size)
        self.activation = ACTIVATIONS[model.activation]
        self.norm = build_norm(model)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


def part(path: str) -> str:
    """The part of the model that a parameter belongs to, by its path."""
    names = path.split(".")
    for sublayer in ("attention", "feed_forward"):
        if sublayer in names:
            return sublayer
    if any(name.endswith("norm") for name in names):
        return "norm"
    return "output" if names[0] == "head" else "embedding"


def linear_multiplies(module: nn.Module) -> int:
    """Multiply-adds of a module's linear maps for one position."""
    return sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
