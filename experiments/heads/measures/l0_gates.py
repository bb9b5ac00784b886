"""Fine-tuning with gates on the heads that cost something while they are open: L0 pruning (Voita et al. 2019,
1905.09418).

Hard-concrete gates (Louizos et al. 2018, 1712.01312) are 0 or 1 with positive probability, and have a gradient in
between.
"""

# L layers, H value heads

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from experiments.heads.hooks import gated_by, value_heads
from experiments.heads.trained_run import TrainedRun
from experiments.model.transformer import Transformer
from experiments.objectives.step_random import step_random

TEMPERATURE, STRETCH_LOW, STRETCH_HIGH = 0.33, -0.1, 1.1  # the authors' (lib/layers/concrete_gate.py)
INITIAL_LOG_ALPHA = 2.0  # initial log alpha: gates are open, with a probability of 0.94 of not being 0
GATE_LEARNING_RATE = 0.05  # learning rate of log alpha
MODEL_RATE_FACTOR = 0.1  # factor of the run's learning rate, for the weights


def sample_gates(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    """Gates in [0, 1] from as many uniform numbers in (0, 1) (Louizos et al., equations 10 and 11)."""
    concrete = ((uniform.log() - (1 - uniform).log() + log_alpha) / TEMPERATURE).sigmoid()
    return (concrete * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW).clamp(0, 1)


def open_probability(log_alpha: Tensor) -> Tensor:
    """1 - P(gate = 0), equation 12."""
    return (log_alpha - TEMPERATURE * math.log(-STRETCH_LOW / STRETCH_HIGH)).sigmoid()


def gates_without_noise(log_alpha: Tensor) -> Tensor:
    """The gates without noise, equation 13: exactly 0 for a head that is closed."""
    return (log_alpha.sigmoid() * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW).clamp(0, 1)


def fold_gates(model: Transformer, gates: Sequence[Tensor]) -> None:
    """Multiply the gates into the columns of the output maps, in place.

    The model without gates then computes the same.
    """
    with torch.no_grad():
        for layer, gate in zip(model.layers, gates, strict=True):
            weight: Tensor = layer.attention.output.weight
            weight.copy_((weight.unflatten(1, (len(gate), -1)) * gate[:, None]).flatten(1))


class HardConcreteGates:
    """Gates on the value heads of a model, with a cost for each open gate, as a regularizer of its training.

    All micro-batches of a step have the same gates, which are a pure function of (seed, step) and of log alpha.
    """

    def __init__(self, model: Transformer, penalty: float, seed: int) -> None:
        """penalty: nats for each head that is expected to be open."""
        self.model, self.penalty, self.seed = model, penalty, seed
        self.log_alpha = [nn.Parameter(torch.full((heads,), INITIAL_LOG_ALPHA)) for heads in value_heads(model)]

    def parameters(self) -> list[nn.Parameter]:
        """Log alpha [H] of each layer."""
        return self.log_alpha

    @contextmanager
    def forward_passes(self, index: int) -> Iterator[None]:
        """A block in which the heads' outputs are multiplied by the gates that the step draws."""
        random = step_random(b"gate", self.seed, index)
        uniform = [
            torch.from_numpy(random.random(len(of_layer), dtype=np.float32)).clamp(1e-6, 1 - 1e-6)
            for of_layer in self.log_alpha
        ]
        with gated_by(self.model, lambda layer: sample_gates(self.log_alpha[layer], uniform[layer])):
            yield

    def term(self) -> Tensor:
        """Penalty times the expected number of open heads."""
        return self.penalty * torch.cat([open_probability(of_layer) for of_layer in self.log_alpha]).sum()

    def without_noise(self) -> list[Tensor]:
        """The gates without noise, [H] for each layer."""
        return [gates_without_noise(of_layer.detach()) for of_layer in self.log_alpha]


def finetune_with_gates(run: TrainedRun, steps: int, penalty: float) -> tuple[Transformer, list[Tensor]]:
    """A fine-tuned copy of the model and its final gates, [H] for each layer.

    The objective is the loss per predicted token plus `penalty`, in nats, times the expected number of open heads, on
    the run's own batches. Raises NonFiniteError if the training diverges.
    """
    model = copy.deepcopy(run.model)
    gates = HardConcreteGates(model, penalty, run.settings.seed)
    model_rate = MODEL_RATE_FACTOR * run.settings.optimizer.learning_rate
    learner = run.learner(model)
    learner.regularizer = gates
    # the rate of a group is relative to the model's
    learner.optimizers.append(
        torch.optim.Adam([{"params": gates.parameters(), "rate_factor": GATE_LEARNING_RATE / model_rate}])
    )
    model.train()
    for step in range(1, steps + 1):
        learner.take(step, model_rate)
    return model.eval(), gates.without_noise()
