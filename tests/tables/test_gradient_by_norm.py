"""Gradients at the start of training: their size by finite differences, and what theorem 1 of 2002.04745 says of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from experiments.tables.numerical.gradient_by_norm import measure, untrained


def numbers(norm: str, layers: int, hidden_size: int, seed: int = 0) -> dict[str, float]:
    return measure(seed=seed, norm=norm, layers=layers, hidden_size=hidden_size, heads=2, sequences=2, length=8)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("name", "layer"), [("gradient", -1), ("first_gradient", 0)])
def test_the_norm_is_that_of_central_differences(norm, name, layer):
    model = untrained(norm, 2, 8, 2, 0)
    random = torch.Generator().manual_seed(0)
    stream, gradient = (torch.randn(2, 8, 8, generator=random, dtype=torch.float64) for _ in range(2))
    weight = model.layers[layer].feed_forward.outer.weight
    slopes = []
    with torch.no_grad():
        for entry in range(weight.numel()):
            row, column = divmod(entry, weight.size(1))
            for sign in (1, -1):
                weight[row, column] += sign * 1e-5
                slopes.append(sign * float((model.encoder(stream) * gradient).sum() / 4 / 2e-5))
                weight[row, column] -= sign * 1e-5
    by_entry = np.reshape(slopes, (-1, 2)).sum(1)
    assert numbers(norm, 2, 8)[name] == pytest.approx(float(np.linalg.norm(by_entry)), rel=1e-6)


def test_depth_shrinks_the_gradient_of_the_last_layer_with_pre_norm_only():
    means = {
        (norm, layers): np.mean([numbers(norm, layers, 32, seed)["log_gradient"] for seed in range(4)])
        for norm in ("pre", "post")
        for layers in (2, 16)
    }
    assert abs(means["post", 16] - means["post", 2]) < 0.15
    # one over the root of 8 times as many layers
    assert means["pre", 16] - means["pre", 2] == pytest.approx(-math.log(8) / 2, abs=0.3)
