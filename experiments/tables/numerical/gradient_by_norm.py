"""How large the gradients of deep models start (Xiong et al. 2020, 2002.04745, theorem 1 and figure 3).

By the theorem, the gradient of the last feed-forward layer has the same order of size at any depth with post-norm. With
pre-norm, it shrinks as one over the root of the number of layers. This is measured on the project's own layers.
"""

# B sequences, N length, D hidden size

from __future__ import annotations

import math

import torch

from experiments.config.compose import compose
from experiments.model.build import build
from experiments.model.transformer import Transformer


def measure(
    *, seed: int, norm: str, layers: int, hidden_size: int, heads: int, sequences: int, length: int
) -> dict[str, float]:
    """Measure gradients at the starting values, in float64.

    The input of the first layer and the gradient of the loss with respect to the output are normal vectors, the same at
    every depth.

    Args:
        seed: the seed of the starting values, the input and the gradient.
        norm: the setting `norm`.
        layers: the number of layers.
        hidden_size: D.
        heads: the number of heads.
        sequences: B.
        length: N.

    Returns three numbers without units: `gradient`, the Frobenius norm of the gradient of the last feed-forward layer's
    second matrix; `log_gradient`, its natural logarithm; and `first_gradient`, the norm for the first layer.
    """
    model = untrained(norm, layers, hidden_size, heads, seed)
    random = torch.Generator().manual_seed(seed)
    shape = (sequences, length, hidden_size)
    input_BND, gradient_BND = (torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(2))
    output_BND = model.get_submodule("encoder")(input_BND)
    matrices = [layer.feed_forward.outer.weight for layer in (model.layers[-1], model.layers[0])]
    last, first = torch.autograd.grad(output_BND, matrices, gradient_BND / math.sqrt(sequences * length))
    gradient = float(last.norm())
    return {"log_gradient": math.log(gradient), "gradient": gradient, "first_gradient": float(first.norm())}


def untrained(norm: str, layers: int, hidden_size: int, heads: int, seed: int) -> Transformer:
    """An encoder without positions, in float64. Each of its maps starts so that it keeps the scale of its input."""
    sizes = [f"norm={norm}", f"layers={layers}", f"hidden_size={hidden_size}", f"heads={heads}"]
    settings = compose([*sizes, "model.position=none", "model.initial_std=null"])
    model = build(settings.objective.architecture, settings.model, settings.variant, 1, seed)
    return model.eval().double()
