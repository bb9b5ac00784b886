"""Kinds of norm, and where a norm stands in a residual sub-layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from experiments import settings


def build_norm(model: settings.Model, size: int | None = None) -> nn.Module:
    """A norm over the last dimension, `size` wide, `model.hidden_size` where that is None.

    layer: Ba et al. 2016, 1607.06450; layer_no_bias: that without its bias; rms: Zhang and Sennrich 2019, 1910.07467.
    """
    size = size or model.hidden_size
    if model.norm_kind == "rms":
        return RMSNorm(size, eps=model.norm_epsilon)
    return nn.LayerNorm(size, eps=model.norm_epsilon, bias=model.norm_kind == "layer")


class RMSNorm(nn.RMSNorm):
    """In the dtype of its weights: torch norms bf16 by float32 weights unfused, with a warning."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


class Residual(nn.Module):
    """A sub-layer f with its residual connection, its norms and its dropout.

    post (Vaswani et al. 2017, 1706.03762):    norm(x + f(x))
    pre (Xiong et al. 2020, 2002.04745):       x + f(norm(x))
    sandwich (Ding et al. 2021, 2105.13290):   x + output_norm(f(norm(x)))
    """

    def __init__(self, model: settings.Model) -> None:
        super().__init__()
        self.norm_first = model.norm != "post"
        self.norm = build_norm(model)
        self.output_norm = build_norm(model) if model.norm == "sandwich" else None
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x [..., D] -> [..., D]; `sublayer` keeps the shape."""
        output = sublayer(self.norm(x) if self.norm_first else x)
        if self.output_norm is not None:
            output = self.output_norm(output)
        x = x + self.dropout(output)
        return x if self.norm_first else self.norm(x)
