"""The loss of many positions, a few at a time: torch's own numbers and gradients, without its large tensors."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.objectives import cross_entropy
from experiments.objectives.cross_entropy import IGNORED_TARGET, CrossEntropy


def example(dtype, positions=11, vocabulary=7):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(positions, vocabulary, generator=generator, dtype=torch.float64)
    targets = torch.randint(vocabulary, (positions,), generator=generator)
    targets[4] = IGNORED_TARGET
    return logits.to(dtype).requires_grad_(), targets


@pytest.mark.parametrize("at_once", [1, 21, 1000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_losses_and_gradients_are_those_of_torch(monkeypatch, at_once, smoothing, dtype):
    """One position at a time, three, and all eleven; each has a weight of its own in the gradient."""
    monkeypatch.setitem(cross_entropy.LOGITS_AT_ONCE, "cpu", at_once)
    weights = torch.linspace(0.5, 2, 11)
    (ours, targets), (theirs, _) = example(dtype), example(dtype)
    losses = CrossEntropy.apply(ours, targets, smoothing)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    expected = F.cross_entropy(theirs.to(wide), targets, reduction="none", label_smoothing=smoothing)
    assert losses.dtype == wide and torch.equal(losses, expected) and losses[4] == 0
    (losses * weights).sum().backward()
    (expected * weights).sum().backward()
    assert ours.grad.dtype == dtype and not ours.grad[4].any()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_gradient_is_that_of_finite_differences(smoothing):
    logits, targets = example(torch.float64)
    assert torch.autograd.gradcheck(lambda each: CrossEntropy.apply(each, targets, smoothing), logits)


def test_a_position_by_hand():
    """The second of the logits ln 1, ln 2, ln 5 has the loss -ln(2/8); its gradient 1/8, 2/8 - 1, 5/8."""
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log().requires_grad_()
    loss = CrossEntropy.apply(logits, torch.tensor([1]), 0.0)
    loss.sum().backward()
    torch.testing.assert_close(loss, torch.tensor([4.0]).log())
    torch.testing.assert_close(logits.grad, torch.tensor([[0.125, -0.75, 0.625]]))


def test_nothing_wide_is_larger_than_what_is_computed_at_a_time(monkeypatch):
    monkeypatch.setitem(cross_entropy.LOGITS_AT_ONCE, "cpu", 2 * 50)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            made = function(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and made.dtype == torch.float32:
                largest = max(largest, made.numel())
            return made

    logits, targets = example(torch.bfloat16, positions=64, vocabulary=50)
    with Watch():
        CrossEntropy.apply(logits, targets, 0.1).sum(dtype=torch.float64).backward()
    assert 100 <= largest <= 2 * 50
