"""The groups of parameters that have the same weight decay and the same factor of the learning rate.

With every optimizer, matrices have weight decay and vectors (biases and gains of norms) don't. Embeddings are matrices
and decay. So do the parameters that mix heads (P_l and P_w), because they multiply the logits or the weights as any
linear map does. Without decay, theirs would be the only scale of the layer that nothing limits, and the softmax turns
the scale of logits into sharpness.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from attention.layers.attention_layer import AttentionLayer
from experiments.model.layers.position import Learned, RelativeBias
from experiments.settings.optimizer import Stepping


def parameter_groups(model: nn.Module, parameters: Iterable[nn.Parameter], config: Stepping) -> list[dict[str, Any]]:
    """Groups of matrices or of vectors, each with its factor of the learning rate, in the order of `parameters`."""
    layers = [module for module in model.modules() if isinstance(module, AttentionLayer)]
    mixing = [parameter for layer in layers for parameter in layer.head_mixing_parameters()]
    factors = dict.fromkeys(mixing, config.head_mixing_rate_factor)
    tables = [module for module in model.modules() if isinstance(module, Learned | RelativeBias)]
    factors |= {parameter: config.position_rate_factor for table in tables for parameter in table.parameters()}
    by_kind: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            factor = factors.get(parameter, 1.0)
            by_kind.setdefault((parameter.dim() >= 2, factor), []).append(parameter)
    return [
        {"params": of_kind, "matrices": matrices, "weight_decay": config.weight_decay * matrices, "rate_factor": factor}
        for (matrices, factor), of_kind in by_kind.items()
    ]
