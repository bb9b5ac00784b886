"""Results that the backward pass computes again: the same gradients, what is kept, and what is computed twice."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from attention.layers.recompute import recomputed


class Layer(nn.Module):
    """outer(gelu(x) * gate), which counts how often it begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Linear(24, 5)
        self.begun = self.ended = 0

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        self.begun += 1
        output = self.outer(F.gelu(x) * gate)
        self.ended += 1
        return output


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, gate = (torch.randn(2, 7, 24, dtype=dtype, generator=generator).requires_grad_() for _ in range(2))
    return x, gate


def by_torch(function, *tensors):
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)


@pytest.mark.parametrize("autocast", [False, True])
def test_output_and_gradients_have_the_bits_of_the_plain_function_and_of_torchs_checkpoint(autocast):
    layer, tensors = Layer(), inputs()
    found = []
    for how in (recomputed, by_torch, lambda function, *tensors: function(*tensors)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            output = how(layer, *tensors)
        # the backward pass is outside of autocast
        found.append([output, *torch.autograd.grad(output.float().square().sum(), [*tensors, *layer.parameters()])])
    assert found[0][0].dtype == (torch.bfloat16 if autocast else torch.float32)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_the_second_computation_ends_where_nothing_more_is_kept():
    layer = Layer()
    output = recomputed(layer, *inputs())
    assert (layer.begun, layer.ended) == (1, 1)
    output.sum().backward()
    assert (layer.begun, layer.ended) == (2, 1), "the product of `outer` is not computed again"


def test_only_the_inputs_are_kept():
    layer, (x, gate), kept = Layer(), inputs(), []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    # they are no leaves, as in a model
    tensors = [x + 1, gate + 1]
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        recomputed(layer, *tensors)
    assert {tensor.data_ptr() for tensor in kept if tensor.numel()} == {tensor.data_ptr() for tensor in tensors}


def test_second_derivatives_and_a_second_backward_pass_are_right():
    layer, tensors = Layer().double(), inputs(torch.float64)
    assert torch.autograd.gradgradcheck(lambda *each: recomputed(layer, *each), [each[:1, :2] for each in tensors])
    output = recomputed(layer, *tensors).square().sum()
    first, second = (torch.autograd.grad(output, tensors, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_parameters_get_gradients_where_no_input_needs_one():
    layer, tensors = Layer(), [tensor.detach() for tensor in inputs()]
    found, plain = (
        torch.autograd.grad(output.sum(), [*layer.parameters()])
        for output in (recomputed(layer, *tensors), layer(*tensors))
    )
    assert all(map(torch.equal, found, plain))


def test_a_change_of_an_input_in_place_is_noticed():
    layer, (x, gate) = Layer(), inputs()
    changed = x + 1
    output = recomputed(layer, changed, gate)
    with torch.no_grad():
        changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_without_gradients_nothing_is_recorded():
    with torch.no_grad():
        assert recomputed(Layer(), *inputs()).grad_fn is None


def test_tensors_without_data_go_through():
    layer = Layer().to("meta")
    x, gate = (tensor.detach().to("meta").requires_grad_() for tensor in inputs())
    recomputed(layer, x, gate).sum().backward()
    assert x.grad.shape == x.shape and layer.outer.weight.grad.is_meta


def test_what_was_kept_goes_with_the_backward_pass():
    layer, (x, gate) = Layer(), inputs()
    inner = x + 1
    kept = weakref.ref(inner)
    output = recomputed(layer, inner, gate)
    del inner
    assert kept() is not None
    gc.disable()
    try:
        output.sum().backward()
        assert kept() is None, "it does not wait for the garbage collector"
    finally:
        gc.enable()
