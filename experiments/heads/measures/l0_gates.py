"""Fine-tuning with gates on the heads that cost something while open: L0 pruning (Voita et al. 2019, 1905.09418).

Hard-concrete gates (Louizos et al. 2018, 1712.01312): 0 or 1 with positive probability, and a gradient in between.
"""

# L layers, H value heads

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.heads.hooks import gated, value_heads
from experiments.heads.measures.equal_start import training_batch
from experiments.heads.trained_run import Subject
from experiments.model.assembly import Assembly
from experiments.model.batch_norm import commit
from experiments.objectives.loss import loss
from experiments.training.optimizer import build_optimizers

TEMPERATURE, LOW, HIGH = 0.33, -0.1, 1.1  # the authors' (lib/layers/concrete_gate.py)
START = 2.0  # log alpha at the start: gates are open, with a probability of 0.94 of not being 0
GATE_RATE = 0.05  # learning rate of log alpha
MODEL_RATE = 0.1  # of the run's learning rate, for the weights


def sample(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    """Gates in [0, 1] from as many uniform numbers in (0, 1) (Louizos et al., equations 10 and 11)."""
    concrete = ((uniform.log() - (1 - uniform).log() + log_alpha) / TEMPERATURE).sigmoid()
    return (concrete * (HIGH - LOW) + LOW).clamp(0, 1)


def open_probability(log_alpha: Tensor) -> Tensor:
    """1 - P(gate = 0), equation 12."""
    return (log_alpha - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()


def settled(log_alpha: Tensor) -> Tensor:
    """The gates without noise, equation 13: exactly 0 for a head that is closed."""
    return (log_alpha.sigmoid() * (HIGH - LOW) + LOW).clamp(0, 1)


def fold(model: Assembly, gates: Sequence[Tensor]) -> None:
    """Multiply the gates into the columns of the output maps, in place: the model without gates is then the same."""
    with torch.no_grad():
        for layer, gate in zip(model.layers, gates, strict=True):
            weight: Tensor = layer.attention.output.weight
            weight.copy_((weight.unflatten(1, (len(gate), -1)) * gate[:, None]).flatten(1))


def tune(subject: Subject, steps: int, penalty: float) -> tuple[Assembly, list[Tensor]]:
    """A fine-tuned copy of the model and its settled gates [H] a layer; `penalty`: nats for each open head.

    The loss per predicted token plus penalty times the expected number of open heads, on the run's own batches.
    """
    settings = subject.settings
    model = copy.deepcopy(subject.model)
    parameters = [torch.full((heads,), START, requires_grad=True) for heads in value_heads(model)]
    rate = MODEL_RATE * settings.optimizer.learning_rate
    optimizers = [
        *build_optimizers(model, settings.optimizer.model_copy(update={"learning_rate": rate})),
        torch.optim.Adam(parameters, GATE_RATE),
    ]
    generator = torch.Generator().manual_seed(settings.seed)
    for step in range(steps):
        batch = training_batch(subject, step)
        noise = [torch.rand(len(each), generator=generator).clamp(1e-6, 1 - 1e-6) for each in parameters]
        with gated(model, [sample(*pair) for pair in zip(parameters, noise, strict=True)]):
            error = loss(model(**batch.inputs, rows=batch.rows), batch.targets) / len(batch.targets)
        open_heads = sum((open_probability(each).sum() for each in parameters), start=torch.zeros(()))
        for optimizer in optimizers:
            optimizer.zero_grad()
        (error + penalty * open_heads).backward()
        for optimizer in optimizers:
            optimizer.step()
        commit(model)
    return model, [settled(each.detach()) for each in parameters]
