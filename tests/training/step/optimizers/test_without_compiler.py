"""Optimizers without torch's compiler: torch's own numbers, and a first step that does not import the compiler."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from experiments.training.step.optimizers.without_compiler import without_compiler

KINDS = {
    "adamw": (torch.optim.AdamW, {"lr": 0.1, "fused": True}),
    "adafactor": (torch.optim.Adafactor, {"lr": 0.1}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_its_steps_and_its_state_are_those_of_torchs_own(kind):
    own_class, options = KINDS[kind]
    models, states = [], []
    for made in (own_class, without_compiler(own_class)):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = made([{"params": [model.weight], "weight_decay": 0.5}, {"params": [model.bias]}], **options)
        assert isinstance(optimizer, own_class) and type(optimizer).__name__ == own_class.__name__
        for step in range(3):
            optimizer.zero_grad()
            model(torch.full((2, 4), 1.0 + step)).square().sum().backward()
            optimizer.step()
        again = made([{"params": [model.weight]}, {"params": [model.bias]}], **options)
        again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        models.append([*model.parameters()])
        states.append(again.state_dict()["state"])
    assert all(map(torch.equal, *models))
    for index, state in states[0].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(states[1][index][name])), name


def test_a_loss_that_step_is_given_is_computed_with_gradients():
    model = nn.Linear(2, 1)
    optimizer = without_compiler(torch.optim.AdamW)(model.parameters(), lr=0.1, fused=True)
    before = model.weight.detach().clone()

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(torch.ones(1, 2)).square().sum()
        value.backward()
        return value

    assert optimizer.step(loss) is not None
    assert not torch.equal(model.weight, before)


STEPPED = """
import sys
from experiments.config.compose import compose
from experiments.tasks.choose import task_of
from experiments.training.set_up import build_learner, kernels, prepare_process
from experiments.training.step.world import ALONE
for words in ("optimizer=muon", "optimizer=adamw variant=additive", "optimizer=adafactor", "backend=blocked"):
    settings = compose([*sys.argv[1:], *words.split()])
    device = prepare_process(settings, ALONE)
    task = task_of(settings)
    learner = build_learner(settings, task, task.prepare(lambda *stage: None), device, "fp32", ALONE)
    kernels(learner, settings)
    learner.take(1, 0.1)
    print("torch._dynamo" in sys.modules)
"""


def test_a_first_step_does_not_import_the_compiler(tiny, tmp_path, with_kernel):
    command = [sys.executable, "-c", STEPPED, *tiny, f"cache={with_kernel(tmp_path)}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == 4 * ["False"], done.stderr
