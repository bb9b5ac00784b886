"""The interface of a whole model, whatever its architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import nn

from experiments.model.layers.encoder import EncoderLayer


class Transformer(nn.Module):
    """A model whose forward takes the inputs of a batch as keywords, and `positions`, and returns logits [P, V]."""

    causal: ClassVar[bool] = False  # whether a position attends only to itself and those before it, on the only side

    @property
    def layers(self) -> Sequence[EncoderLayer]:
        """The layers with attention, in the order in which they run."""
        raise NotImplementedError

    @property
    def stacks(self) -> Sequence[Sequence[EncoderLayer]]:
        """The layers of each residual stream; an encoder-decoder has two."""
        return [self.layers]

    @property
    def attentions(self) -> list[Any]:
        """Every attention layer; a decoder's layers have two."""
        return [layer.attention for layer in self.layers]

    def flops_per_token(self, length: int, predicted_share: float) -> float:
        """FLOPs of a training step per token that the model reads.

        predicted_share: the share of these tokens that are predicted. A multiply-add counts as 2 FLOPs, and a backward
        pass as two forward passes. Only matrix products count, as in the papers' formulas.
        """
        raise NotImplementedError

    def kernels(self) -> list[str]:
        """Names of the attention kernels that ran last, sorted; empty before the first forward."""
        return sorted({attention.kernel for attention in self.attentions} - {None})

    def parameter_counts(self) -> dict[str, int]:
        """Parameters by part, and their total. Each counts once; a tied output embedding counts as input embedding."""
        counts = dict.fromkeys(("embedding", "attention", "feed_forward", "norm", "output"), 0)
        for path, parameter in self.named_parameters():
            counts[part(path)] += parameter.numel()
        return counts | {"total": sum(counts.values())}


def part(path: str) -> str:
    """The part of the model that a parameter belongs to, by its path."""
    names = path.split(".")
    if {"attention", "cross_attention"} & set(names):
        return "attention"
    if "feed_forward" in names:
        return "feed_forward"
    if any(name.endswith("norm") for name in names):
        return "norm"
    return "output" if names[0] in ("head", "order") else "embedding"


def linear_multiplies(module: nn.Module) -> int:
    """Multiply-adds of a module's linear maps for one position."""
    return sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))
