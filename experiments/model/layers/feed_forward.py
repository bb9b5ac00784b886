"""The feed-forward of a layer (Vaswani et al. 2017, 1706.03762, 3.3), with or without a gate."""

# D hidden size

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from attention.layers.recompute import recomputed
from experiments.settings.model import Model

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class FeedForward(nn.Module):
    """outer(activation(inner(x))); gated: outer(activation(gate(x)) * inner(x)) (Shazeer 2020, 2002.05202).

    In training, the input of `outer` is not kept but recomputed in the backward pass, because it is as large as the
    output of `inner`.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.inner = nn.Linear(model.hidden_size, model.intermediate_size, bias=model.linear_bias)
        self.gate: nn.Linear | None = None
        if model.gated:
            self.gate = nn.Linear(model.hidden_size, model.intermediate_size, bias=model.linear_bias)
        self.activation = ACTIVATIONS[model.activation]
        self.outer = nn.Linear(model.intermediate_size, model.hidden_size, bias=model.linear_bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]"""
        inner = (self.inner(x),) if self.gate is None else (self.inner(x), self.gate(x))
        return recomputed(self._output, *inner) if self.training else self._output(*inner)

    def _output(self, inner: Tensor, gate: Tensor | None = None) -> Tensor:
        return self.outer(self.activation(inner) if gate is None else self.activation(gate) * inner)
