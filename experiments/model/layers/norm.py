"""Kinds of norm, and the places of norms in a residual sub-layer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor, nn

from experiments.settings.model import Model, Norm
from experiments.settings.norm import NORM_KINDS


def build_norm(model: Model, size: int | None = None) -> nn.Module:
    """Build the model's kind of norm, over a last dimension of `size`; None means `model.hidden_size`."""
    kind = NORM_KINDS[model.norm_kind]
    norm: nn.Module = getattr(import_module(kind.module), kind.name)(
        size or model.hidden_size, eps=model.norm_epsilon, **kind.options
    )
    return norm


class RMSNorm(nn.RMSNorm):
    """Root mean square norm in the dtype of its weights.

    For bf16 inputs and float32 weights torch's norm would run unfused, with a warning.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]"""
        return super().forward(x.to(self.weight.dtype))


class Residual(nn.Module):
    """A sub-layer f with its residual connection, its norms and its dropout.

    post (Vaswani et al. 2017, 1706.03762):    norm(x + f(x))
    pre (Xiong et al. 2020, 2002.04745):       x + f(norm(x))
    sandwich (Ding et al. 2021, 2105.13290):   x + output_norm(f(norm(x)))
    deep (Wang et al. 2022, 2203.00555):       norm(alpha x + f(x))
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.norm_first = not ends_with_norm(model.norm)
        self.alpha = deep_gains(model.layers).alpha if model.norm == "deep" else 1.0
        self.norm = build_norm(model)
        self.output_norm = build_norm(model) if model.norm == "sandwich" else None
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x [..., D] -> [..., D]; `sublayer` keeps the shape."""
        output = sublayer(self.norm(x) if self.norm_first else x)
        if self.output_norm is not None:
            output = self.output_norm(output)
        x = torch.add(self.dropout(output), x, alpha=self.alpha)
        return x if self.norm_first else self.norm(x)


def ends_with_norm(placement: Norm) -> bool:
    """Whether the norm comes after the sum, so that a stack of such sub-layers needs no final norm."""
    return placement in ("post", "deep")


class DeepGains(NamedTuple):
    """The two constants of DeepNorm."""

    alpha: float  # factor of the residual connection
    beta: float  # factor of the starting values of the value, output and feed-forward maps, two to a branch


def deep_gains(layers: int) -> DeepGains:
    """DeepNorm's constants for an encoder or a decoder of N layers: alpha = (2N)^(1/4), beta = (8N)^(-1/4).

    At every depth, 2N sub-layers with maps of gain beta then change the output by N (beta^2 + beta^2) / alpha^2 = 1/2.
    beta^2 is of two maps in turn, so the gate of a feed-forward keeps its start, and a branch of one map has it in that
    one.
    The authors' code has the same constants (microsoft/torchscale, torchscale/architecture/encoder.py).
    """
    return DeepGains((2 * layers) ** 0.25, (8 * layers) ** -0.25)
