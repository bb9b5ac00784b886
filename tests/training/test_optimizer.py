from __future__ import annotations

import pytest
import torch
from torch import nn

from experiments.settings import AdamW
from experiments.training.optimizer import adamw, moments, set_learning_rate

SETTINGS = AdamW(learning_rate=0.1, weight_decay=0.5, beta1=0.9, beta2=0.99, epsilon=1e-8, clip=None)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.projection = nn.Parameter(torch.eye(2))


def ones(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return model


def test_two_steps_by_hand():
    model = ones(Model())
    optimizer = adamw(model, SETTINGS)
    value, vector, moment, second = 1.0, 1.0, 0.0, 0.0
    for step, (rate, gradient) in enumerate([(0.1, 2.0), (0.05, -1.0)], 1):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        set_learning_rate(optimizer, rate)
        optimizer.step()
        moment = 0.9 * moment + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        update = rate * (moment / (1 - 0.9**step)) / ((second / (1 - 0.99**step)) ** 0.5 + 1e-8)
        # decoupled: the decay doesn't go through the moments, and follows the schedule
        value = value * (1 - rate * 0.5) - update
        vector = vector - update
        assert model.linear.weight.flatten().tolist() == pytest.approx([value] * 4, rel=1e-6)
        assert model.linear.bias.tolist() == pytest.approx([vector] * 2, rel=1e-6)


def test_only_matrices_decay():
    model = ones(Model())
    optimizer = adamw(model, SETTINGS)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    decayed = {name for name, parameter in model.named_parameters() if parameter.ne(1).any()}
    assert decayed == {"linear.weight", "projection"}


def test_the_moments_are_there_before_the_first_step_and_are_the_ones_it_uses():
    model = ones(Model())
    optimizer = adamw(model, SETTINGS)
    before = moments(model, optimizer)
    assert {"exp_avg/linear.weight", "exp_avg_sq/norm.bias", "step/projection"} <= before.keys()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert before["step/projection"].item() == 1.0
    assert before["exp_avg/linear.weight"].flatten().tolist() == pytest.approx([0.1] * 4)
