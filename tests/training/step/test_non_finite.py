from __future__ import annotations

import torch
from torch import nn

from experiments.training.step.non_finite import describe, first_module, locate


class Divide(nn.Module):
    def forward(self, x):
        return x / 0.0


def net(*modules):
    torch.manual_seed(0)
    return nn.Sequential(*modules)


def test_the_first_module_is_the_innermost_that_returned_it():
    model = net(nn.Linear(3, 3), nn.Sequential(nn.GELU(), Divide(), nn.Linear(3, 3)), nn.Linear(3, 1))
    assert first_module(model, lambda: model(torch.ones(2, 3))) == ("1.1", False)


def test_hooks_are_removed():
    model = net(Divide())
    first_module(model, lambda: model(torch.ones(2)))
    assert not model[0]._forward_hooks and not model._forward_hooks


def test_a_fault_between_modules_is_told_from_one_inside():
    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(3, 3)

        def forward(self, x):
            return self.output(x / 0.0)

    model = net(nn.Linear(3, 3), Between())
    assert first_module(model, lambda: model(torch.ones(2, 3))) == ("1.output", True)
    assert "1.output, whose input already was not" in locate(model, lambda: model(torch.ones(2, 3)))


def test_a_poisoned_weight_is_named():
    model = net(nn.Linear(3, 3), nn.Linear(3, 3))
    with torch.no_grad():
        model[1].weight[0, 0] = float("nan")
    where = locate(model, lambda: model(torch.ones(2, 3)))
    assert where == "the first module to return something not finite is 1; 1.weight is not finite itself"


def test_a_gradient_that_is_not_finite_is_named():
    model = net(nn.Linear(3, 3), nn.Linear(3, 3))
    # sqrt at 0 has a finite value and an infinite slope
    model(torch.zeros(1, 3)).sub(model(torch.zeros(1, 3))).sqrt().sum().backward()
    assert "the first parameter whose gradient is not is 0.weight" in locate(model, lambda: model(torch.ones(1, 3)))


def test_an_overflowing_norm():
    model = net(nn.Linear(3, 3))
    model[0].weight.grad = torch.full((3, 3), 3e38)
    assert "their norm overflows" in locate(model, lambda: model(torch.ones(1, 3)))


def test_one_line_with_step_and_batch():
    line = describe(7, torch.arange(6).view(2, 3), float("nan"), 1.0, "somewhere")
    assert line.startswith("step 7 (batch ") and "of 2 sequences): loss nan, gradient norm 1; somewhere" in line
    assert line != describe(7, torch.zeros(2, 3, dtype=torch.int64), float("nan"), 1.0, "somewhere")
