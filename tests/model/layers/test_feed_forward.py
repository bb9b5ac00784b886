"""The feed-forward: its formula, and what it keeps."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from experiments.model.layers.feed_forward import FeedForward


@pytest.mark.parametrize("gated", [False, True])
def test_the_activation_is_computed_again_and_not_kept(settings_of, gated):
    model = settings_of(gated=gated)
    layer = FeedForward(model)
    x = torch.randn(3, 7, model.hidden_size, requires_grad=True)
    inner = layer.inner(x)
    active = F.gelu(inner) if layer.gate is None else F.gelu(layer.gate(x)) * inner
    expected = layer.outer(active)
    needed = [x, *layer.parameters()]
    gradients = torch.autograd.grad(expected.square().sum(), needed)

    kept: set[int] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape[-1] == model.intermediate_size:
            kept.add(tensor.untyped_storage().data_ptr())
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(x)
    weights = {each.untyped_storage().data_ptr() for each in layer.parameters()}
    assert len(kept - weights) == 1 + gated, "what the inner maps gave, and nothing made of it"
    assert torch.equal(output, expected)
    for found, wanted in zip(torch.autograd.grad(output.square().sum(), needed), gradients, strict=True):
        assert torch.equal(found, wanted)
